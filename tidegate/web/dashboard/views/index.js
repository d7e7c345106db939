// The views of a job, in the order of the menu. Private ones show records, state, logs or stacks.
// Some need the driver of the job, and disappear with it.
import { Charts } from "./charts.js";
import { Checkpoints } from "./checkpoints.js";
import { Configuration } from "./configuration.js";
import { DeadLetters } from "./dead_letters.js";
import { Failures } from "./failures.js";
import { Graph } from "./graph.js";
import { Logs } from "./logs.js";
import { Sample } from "./sample.js";
import { JobState } from "./state.js";
import { Threads } from "./threads.js";

export const VIEWS = [
  { id: "graph", label: "Graph", icon: "graph", view: Graph, isFull: true },
  { id: "checkpoints", label: "Checkpoints", icon: "checkpoints", view: Checkpoints },
  { id: "failures", label: "Failures", icon: "failures", view: Failures },
  { id: "charts", label: "Charts", icon: "charts", view: Charts },
  { id: "state", label: "State", icon: "state", view: JobState, isPrivate: true },
  { id: "dead-letters", label: "Dead letters", icon: "letters", view: DeadLetters, isPrivate: true },
  { id: "sample", needsDriver: true, label: "Sample", icon: "sample", view: Sample, isPrivate: true },
  { id: "configuration", label: "Configuration", icon: "settings", view: Configuration },
  { id: "logs", needsDriver: true, label: "Logs", icon: "logs", view: Logs, isPrivate: true },
  { id: "threads", needsDriver: true, label: "Threads", icon: "threads", view: Threads, isPrivate: true },
];
