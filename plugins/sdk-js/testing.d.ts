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
  reject: { candidate: number; code: number; ends: boolean }[];
  wakeUs: bigint | undefined;
}

/** A plug-in under test. */
export class Bench {
  constructor(plugin: Scheduler, of?: { config?: object; maxBatch?: number; keys?: string[]; numbers?: string[]; manifest?: string });
  round: { nowUs: number; runUs: number; instance: number; maxBatch: number; freeInstances: number; live: number; backlog: number; notShown: number };
  /** Asks for a plan; an answer that breaks a rule of the server is an error. Undefined: the plug-in left the round to the built-in policy. */
  plan(candidates: Candidate[]): Decision | undefined;
  admit(waiting: Candidate[], room: number[], victims: Candidate[]): Admitted[];
  /** Advances the clock. */
  waitUs(micros: number): void;
  /** The sequences of these requests began. */
  began(starts: Candidate[]): void;
  /** Their sequences got slots, after this time in the backlog. */
  slotted(starts: Candidate[], waitedUs: number): void;
  /** These requests ran. */
  done(candidates: Candidate[]): void;
  /** These requests failed. */
  failed(candidates: Candidate[]): void;
  /** The sequences of these STARTs ended. */
  ended(starts: Candidate[], why: string): void;
  /** A batch ran for this long. */
  batchRan(micros: number): void;
}
