// The job of the page: live from the stream, or from the archive if it has ended elsewhere.
import { useMemo } from "./html.js";
import { jobs, live } from "./live.js";
import { useResource } from "./resource.js";

/** The live document of a job; of an archived job the same fields, as far as they are known. */
export function useJob(jid) {
  const isArchived = jobs.value?.find((job) => job.jid === jid)?.archived ?? false;
  const details = useResource(isArchived ? `/jobs/${jid}` : null).data;
  const archived = useMemo(() => details && ofArchive(details), [details]);
  return isArchived ? archived : live.value?.jid === jid ? live.value : null;
}

function ofArchive(details) {
  const { plan, tidegate } = details;
  const inputs = plan.nodes.flatMap((node) =>
    (node.inputs ?? []).map((input) => ({ source: input.id, target: node.id, "ship-strategy": input.ship_strategy })),
  );
  return {
    ...details,
    ...tidegate,
    isArchived: true,
    vertices: details.vertices.map((vertex) => ({
      id: vertex.id,
      name: vertex.name,
      status: vertex.status,
      parallelism: vertex.parallelism,
      "records-in": vertex.metrics["read-records"],
      "records-out": vertex.metrics["write-records"],
      watermark: vertex.tidegate?.watermark,
    })),
    edges: inputs.map((edge, id) => ({ id, ...edge })),
  };
}
