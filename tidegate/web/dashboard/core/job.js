// The job of the page: live from the stream, or as it was when it ended.
import { computed } from "./html.js";
import { jobs, live } from "./live.js";
import { route } from "./router.js";
import { useResource } from "./resource.js";

/** Whether the job of the page has ended, so that only its last data is available. */
export const isArchived = computed(() => jobs.value?.find((job) => job.jid === route.value.parts[1])?.archived ?? false);

/** The live document of a job, or null. */
export function useJob(jid) {
  const last = useResource(isArchived.value ? `/tidegate/jobs/${jid}/live` : null).data;
  return isArchived.value ? (last ?? null) : live.value?.jid === jid ? live.value : null;
}
