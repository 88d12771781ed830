// The types of index.js.

/** Microseconds of the server's clock. It never goes back; its zero means nothing. */
export type Micros = number;
/** The server's handle of a sequence; 0n for a request without one. No handle is used twice. */
export type Sequence = bigint;
/** The 64-bit FNV-1a hash of a text. */
export type Key = bigint;

/** The deadline of a request that has none. */
export const NEVER: number;
/** The key of a text. */
export function keyOf(text: string): Key;

/** The load of a model that a plug-in serves. */
export interface Model {
  name: string;
  version: number;
  strategy: string;
  maxBatch: number;
  instances: number;
  slots: number;
  numbers: string[];
  keys: string[];
}

/** The state of the load at the time of a question. */
export interface Round {
  nowUs: Micros;
  /** Microseconds that a full batch takes; 0 until a batch has run. */
  runUs: number;
  instance: number;
  maxBatch: number;
  freeInstances: number;
  live: number;
  backlog: number;
  notShown: number;
}

/** The candidates, longest ready first: entry `i` of each column is of candidate `i`. A column that plugin.toml does not name throws. */
export interface Ready {
  readonly length: number;
  readonly sequence: BigUint64Array;
  readonly step: Float64Array;
  /** 4294967295 where it has none. */
  readonly slot: Uint32Array;
  readonly arrivalUs: Float64Array;
  /** For a victim: the time since which its sequence is idle. */
  readonly readyUs: Float64Array;
  /** Infinity: never. */
  readonly deadlineUs: Float64Array;
  readonly priority: Uint32Array;
  /** Class of the shapes. All requests of a batch have the same number here. */
  readonly shapeKey: BigUint64Array;
  /** 1: it starts its sequence; 2: it ends it; 3: both. */
  readonly startEnd: Uint8Array;
  readonly rows: Uint32Array;
  readonly inputBytes: Float64Array;
  readonly stateBytes: Float64Array;
  /** Every candidate, in the order in which they became ready. */
  indices(): number[];
  /** Candidates (all, if none are given), sorted by a column or by a function of the index; with equal keys, in the order given. */
  sorted(key: ArrayLike<number> | ((i: number) => number), of?: number[]): number[];
  /** A key feature; 0n if the model has none of this name. */
  key(feature: string, i: number): Key;
  /** A numeric feature; 0 if the model has none of this name. */
  number(feature: string, i: number): number;
  /** Of these, in this order, those that one batch can take. */
  batch(order: Iterable<number>, round: Round): number[];
}

/** An event. */
export interface Event {
  kind: "began" | "slotted" | "done" | "failed" | "ended" | "batchRan" | "other";
  sequence: Sequence;
  /** Committed steps (began), microseconds in the backlog (slotted), rows (done, failed), a code (ended), microseconds (batchRan). */
  amount: number;
  readonly why: string | undefined;
  key(feature: string): Key;
}

/** An answer: Plan.fire(order).reject(3, 1). */
export class Plan {
  private constructor();
  static fire(order: Iterable<number>): Plan;
  static wait(): Plan;
  static waitUs(micros: number): Plan;
  static waitUntilUs(at: Micros): Plan;
  /** Leaves the round to the built-in policy. */
  static default(): Plan;
  /** Refuses a candidate, and ends its sequence; `code` is the plug-in's code for the reason. */
  reject(candidate: number, code: number): Plan;
  /** Refuses this step of a candidate, and lets its sequence go on. */
  shed(candidate: number, code: number): Plan;
}

/** The answer for one sequence that waits for a slot. */
export type Admitted = { tag: "take" | "evict" | "reject"; val: number } | { tag: "defer" };
export const Admission: {
  take(instance: number): Admitted;
  evict(victim: number): Admitted;
  defer(): Admitted;
  reject(code: number): Admitted;
  /** Gives the free slots to the sequences that wait longest. */
  inOrder(waiting: number, room: Iterable<number>): Admitted[];
};

/** Makes the bytes for `save` of a value, as JSON. Maps and bigints come back as they were. */
export function saved(state: unknown): Uint8Array;
/** Reads what `saved` made. */
export function restored(saved: Uint8Array): any;

/** A scheduler. Only the hooks that plugin.toml names in `wants` are called. */
export class Scheduler {
  configure(config: any, model: Model): void;
  plan(round: Round, ready: Ready): Plan;
  admit(round: Round, waiting: Ready, room: Uint32Array, victims: Ready): Admitted[];
  observe(event: Event): void;
  save(): Uint8Array;
  restore(saved: Uint8Array): void;
}

export namespace host {
  /** Level 0 is an error, 3 for debugging. */
  function log(level: number, message: string): void;
  function error(message: string): void;
  function warn(message: string): void;
  function info(message: string): void;
  function debug(message: string): void;
  function metricAdd(name: string, value: number, labels?: Record<string, string>): void;
  function keyText(key: Key): string | undefined;
  /** Only with the grant sequence-text. */
  function sequenceText(of: Sequence): string | undefined;
  /** For tests: the lines and counters so far, and a way to make a text known. */
  const lines: [number, string][];
  const counters: Record<string, number>;
  function remember(text: string): Key;
}
