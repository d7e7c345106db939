// What a user can do with a job. Each action is one REST call, the same that the command makes.

const failure = (operation) => (operation["failure-cause"] ?? operation.failureCause)?.["stack-trace"];
const jobPath = (job, rest) => `/jobs/${job.jid}${rest}`;
const short = (job) => job.jid.slice(0, 8);
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

const directory = { name: "directory", label: "Directory (empty: that of the settings)", placeholder: "/backups" };

export const ACTIONS = [
  {
    id: "checkpoint",
    label: "Checkpoint",
    title: "Take a checkpoint now",
    text: "In addition to the periodic ones. The job keeps running.",
    command: (job) => `tidegate checkpoint ${short(job)}`,
    call: (job) => ["POST", jobPath(job, "/checkpoints"), {}],
    outcome: (job, id) => jobPath(job, `/checkpoints/${id}`),
    result: (operation) => `Checkpoint ${operation.checkpointId} is complete.`,
    needs: ["RUNNING"],
  },
  {
    id: "savepoint",
    label: "Savepoint",
    title: "Take a savepoint",
    text: "A copy of the whole state that belongs to you: to upgrade, to move, to keep. The job keeps running.",
    fields: [directory],
    command: (job, form) => `tidegate savepoint ${short(job)}${form.directory ? ` ${quoted(form.directory)}` : ""}`,
    call: (job, form) => ["POST", jobPath(job, "/savepoints"), form.directory ? { "target-directory": form.directory } : {}],
    outcome: (job, id) => jobPath(job, `/savepoints/${id}`),
    result: () => "The savepoint is complete.",
    needs: ["RUNNING"],
  },
  {
    id: "rescale",
    label: "Rescale",
    title: "Change the parallelism",
    text: "The job takes a checkpoint and resumes from it with as many subtasks as you say.",
    fields: [{ name: "parallelism", label: "Parallelism", type: "number", min: 1, required: true, initial: (job) => Math.max(...job.vertices.map((vertex) => vertex.parallelism)) }],
    command: (job, form) => `tidegate rescale ${short(job)} ${form.parallelism}`,
    call: (job, form) => ["PATCH", jobPath(job, `/rescaling?parallelism=${form.parallelism}`)],
    outcome: (job, id) => jobPath(job, `/rescaling/${id}`),
    result: (_, form) => `The job runs with parallelism ${form.parallelism}.`,
    needs: ["RUNNING"],
  },
  {
    id: "stop",
    label: "Stop",
    title: "Stop with a savepoint",
    text: "Nothing is processed after the savepoint. Start the job again from it to continue exactly there.",
    fields: [directory, { name: "drain", label: "Drain: end all inputs first, fire all windows and timers. Do not resume from it.", type: "checkbox" }],
    command: (job, form) => `tidegate stop ${short(job)}${form.directory ? ` -p ${quoted(form.directory)}` : ""}${form.drain ? " --drain" : ""}`,
    call: (job, form) => ["POST", jobPath(job, "/stop"), { ...(form.directory && { targetDirectory: form.directory }), drain: Boolean(form.drain) }],
    outcome: (job, id) => jobPath(job, `/savepoints/${id}`),
    result: () => "The job has stopped.",
    needs: ["RUNNING"],
    isDangerous: true,
  },
  {
    id: "cancel",
    label: "Cancel",
    title: "Cancel the job",
    text: "It ends at once, without a savepoint. What came after its last checkpoint is processed again if you resume it.",
    command: (job) => `tidegate cancel ${short(job)}`,
    call: (job) => ["PATCH", jobPath(job, "?mode=cancel")],
    result: () => "The job is being cancelled.",
    needs: ["RUNNING", "CREATED", "INITIALIZING", "RESTARTING", "FAILING"],
    isDangerous: true,
  },
];

/** Restart an ended job; `from` is a path, or "latest". */
export const restart = (job, from) => ({
  id: "restart",
  label: "Start again",
  title: "Start the job again",
  text: from === "latest" ? "From its latest checkpoint." : `From ${from}.`,
  fields: [
    { name: "parallelism", label: "Parallelism (empty: as before)", type: "number", min: 1 },
    { name: "allow", label: "Start even if some state belongs to no operator any more", type: "checkbox" },
  ],
  command: (_, form) => startCommand(job, from, form),
  call: (_, form) => ["POST", `/tidegate/jobs/${job.jid}/start`, { from, parallelism: form.parallelism ? Number(form.parallelism) : null, "allow-non-restored": Boolean(form.allow) }],
  outcome: (_, id) => `/tidegate/starts/${id}`,
  result: () => "The job runs again.",
});

function startCommand(job, from, form) {
  const [, , ...rest] = job.command?.length > 2 ? job.command : ["tidegate", "run", "job.py"];
  const options = [`--from ${quoted(from)}`, form.parallelism && `-p ${form.parallelism}`, form.allow && "--allow-non-restored"];
  return ["tidegate run", ...options.filter(Boolean), ...rest.map(quoted)].join(" ");
}

/** Delete a savepoint, or a checkpoint that no job needs. */
export const dispose = ({ path, kind }) => ({
  id: "dispose",
  label: "Delete",
  title: `Delete this ${kind}`,
  text: `All files of ${path} are deleted. This cannot be undone.`,
  command: () => `tidegate savepoint --dispose ${quoted(path)}`,
  call: () => ["POST", "/savepoint-disposal", { "savepoint-path": path }],
  outcome: (_, id) => `/savepoint-disposal/${id}`,
  result: () => "It is deleted.",
  isDangerous: true,
});

export { failure };
