// The types of testing.js.
import type { Admitted, Scheduler } from "./index.js";

export interface Candidate {
  readonly given: object;
}

export interface Columns {
  sequence?: number;
  step?: number;
  slot?: number;
  arrivalUs?: number;
  readyUs?: number;
  deadlineUs?: number;
  priority?: number;
  shapeKey?: number;
  startEnd?: number;
  rows?: number;
  inputBytes?: number;
  stateBytes?: number;
  keys?: Record<string, string>;
  numbers?: Record<string, number>;
}

/** One candidate; every column that is not given has a value. */
export function candidate(columns?: Columns): Candidate;

export interface Decision {
  fire: number[];
  reject: number[];
  rejectCode: number;
  wakeUs: bigint | undefined;
}

/** A plug-in on the bench. */
export class Bench {
  constructor(plugin: Scheduler, of?: { config?: object; maxBatch?: number; keys?: string[]; numbers?: string[] });
  round: { nowUs: number; instance: number; maxBatch: number; freeInstances: number; live: number; backlog: number; notShown: number };
  /** Asks; an answer that breaks a rule of the server is an error. Undefined: it left the round to the server. */
  plan(candidates: Candidate[]): Decision | undefined;
  admit(waiting: Candidate[], room: number[], victims: Candidate[]): Admitted[];
  /** Says that these requests ran. */
  done(candidates: Candidate[]): void;
}
