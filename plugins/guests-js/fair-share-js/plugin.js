// Fair shares by tenant, as guests/fair-share has them: the tenant that has had the least for its weight goes first, and gets the next free slot. Turns are
// rows over weight.
import { Admission, Plan, Scheduler, keyOf } from "./sdk/index.js";

export class Plugin extends Scheduler {
  burst = 4;
  clock = 0;
  /** @type {Map<bigint, number>} */
  had = new Map();
  /** @type {Map<bigint, number>} */
  weights = new Map();

  /** @type {Scheduler["configure"]} */
  configure(config) {
    this.burst = config.burst ?? this.burst;
    /** @type {Record<string, number>} */
    const weights = config.weights ?? {};
    for (const [tenant, weight] of Object.entries(weights)) {
      if (!(weight > 0)) throw new RangeError(`weights.${tenant} must be above 0`);
      this.weights.set(keyOf(tenant), weight);
    }
  }

  /** @type {Scheduler["plan"]} */
  plan(round, ready) {
    const { order, turns } = this.order(ready);
    this.clock = Math.max(this.clock, turns[order[0]]);
    return Plan.fire(ready.batch(order, round));
  }

  /** @type {Scheduler["admit"]} */
  admit(round, waiting, room) {
    const said = waiting.indices().map(() => Admission.defer());
    const { order } = this.order(waiting);
    Admission.inOrder(waiting.length, room).forEach((slot, n) => {
      said[order[n]] = slot;
    });
    return said;
  }

  /**
   * Candidates, the next one first. Each has its turn as if those of its tenant before it had run.
   * @param {import("./sdk/index.js").Ready} ready
   */
  order(ready) {
    const following = new Map();
    const { arrivalUs, rows } = ready;
    const turns = new Float64Array(ready.length);
    const arrived = ready.sorted(arrivalUs);
    for (const i of arrived) {
      const tenant = ready.key("tenant", i);
      const turn = following.get(tenant) ?? this.turn(tenant);
      turns[i] = turn;
      following.set(tenant, turn + rows[i] / this.weight(tenant));
    }
    return { order: ready.sorted(turns, arrived), turns };
  }

  /** @type {Scheduler["observe"]} */
  observe(event) {
    if (event.kind !== "done") return;
    const tenant = event.key("tenant");
    this.had.set(tenant, this.turn(tenant) + event.amount / this.weight(tenant));
    if (this.had.size > 4096) {
      const least = this.clock - this.burst;
      this.had = new Map([...this.had].filter(([, turn]) => turn > least));
    }
  }

  /** @param {bigint} tenant */
  turn(tenant) {
    return Math.max(this.had.get(tenant) ?? this.clock, this.clock - this.burst / this.weight(tenant));
  }

  /** @param {bigint} tenant */
  weight(tenant) {
    return this.weights.get(tenant) ?? 1;
  }
}
