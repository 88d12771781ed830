// Events.

const KINDS = ["other", "began", "slotted", "done", "failed", "ended", "batchRan"];
export const ENDINGS = [
  "other", "end", "idle", "restarted", "cancelled", "evicted", "drained", "fenced", "unsealed", "dropped", "rejected", "failed",
];

// `kind`: began, slotted, done, failed, ended, batchRan, or other. `sequence` is 0n for a batch and for requests without one. `amount`: committed
// steps (began), microseconds in the backlog (slotted), rows (done, failed), a code (ended: `why` is its name), microseconds (batchRan).
export class Event {
  #keys;
  #names;

  constructor(kind, sequence, amount, keys, names) {
    this.kind = KINDS[kind] ?? "other";
    this.sequence = sequence;
    this.amount = Number(amount);
    this.#keys = keys;
    this.#names = names;
  }

  get why() {
    return this.kind === "ended" ? (ENDINGS[this.amount] ?? "other") : undefined;
  }

  // A key feature of the request that the event is about, or of the sequence's START; 0n if the model has none of this name.
  key(feature) {
    const at = this.#names.indexOf(feature);
    return at < 0 ? 0n : this.#keys[at];
  }
}

// One after the other.
export function* each(events, model) {
  const width = model.keys.length;
  for (let i = 0; i < events.kind.length; i++) {
    const keys = events.keys.slice(i * width, (i + 1) * width);
    yield new Event(events.kind[i], events.sequence[i], events.amount[i], keys, model.keys);
  }
}
