// The types of index.js.

/** Microseconds of the server's clock. It never goes back; its zero means nothing. */
export type Micros = number;
/** A sequence's handle, made by the server and used once; 0n stands for a request without one. */
export type Sequence = bigint;
/** The 64-bit FNV-1a of a text. */
export type Key = bigint;

/** The deadline of a request that has none. */
export const NEVER: number;
/** The key of a text. */
export function keyOf(text: string): Key;

/** What a plug-in is told once, of the load of a model that it decides for. */
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

/** What is so at the time of a question. */
export interface Round {
  nowUs: Micros;
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
  /** Of a victim: since when it is idle. */
  readonly readyUs: Float64Array;
  /** Infinity: never. */
  readonly deadlineUs: Float64Array;
  readonly priority: Uint32Array;
  /** Candidates with unlike numbers here cannot be in one batch. */
  readonly shapeKey: BigUint64Array;
  /** 1: it starts its sequence; 2: it ends it; 3: both. */
  readonly startEnd: Uint8Array;
  readonly rows: Uint32Array;
  readonly inputBytes: Float64Array;
  readonly stateBytes: Float64Array;
  /** Every candidate, in the order in which they became ready. */
  indices(): number[];
  /** Candidates (all, if none are given), the least number of `by` first; of like numbers, in the order given. */
  sorted(by: ArrayLike<number>, of?: number[]): number[];
  /** A key feature; 0n if the model has none of this name. */
  key(feature: string, i: number): Key;
  /** A numeric feature; 0 if the model has none of this name. */
  number(feature: string, i: number): number;
  /** Of these, in this order, those that one batch can take. */
  batch(order: Iterable<number>, round: Round): number[];
}

/** What happened. */
export interface Event {
  kind: "began" | "seated" | "done" | "failed" | "ended" | "other";
  sequence: Sequence;
  /** Committed steps (began), microseconds in the backlog (seated), rows (done, failed), a code (ended). */
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
  /** What the server would do without a plug-in. */
  static default(): Plan;
  /** This one is refused now, and its sequence ends; `code` is the plug-in's own number for why. */
  reject(candidate: number, code: number): Plan;
}

/** What becomes of one sequence that waits for a slot. */
export type Admitted = { tag: "take" | "evict" | "reject"; val: number } | { tag: "defer" };
export const Admission: {
  take(instance: number): Admitted;
  evict(victim: number): Admitted;
  defer(): Admitted;
  refuse(code: number): Admitted;
  /** Whoever waits longest takes what is free. */
  inOrder(waiting: number, room: Iterable<number>): Admitted[];
};

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
  function metricAdd(name: string, value: number): void;
  function keyText(key: Key): string | undefined;
  /** Only with the grant sequence-text. */
  function sequenceText(of: Sequence): string | undefined;
  /** Of tests: what was logged and counted, and a stand-in for a text the server has met. */
  const lines: [number, string][];
  const counters: Record<string, number>;
  function remember(text: string): Key;
}
