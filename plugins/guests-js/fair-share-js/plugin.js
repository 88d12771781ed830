// Fair shares by tenant, as guests/fair-share has them: whoever has had the least for its weight goes first. Turns are rows over weight.
import { Plan, Scheduler, keyOf } from "./sdk/index.js";

export class Plugin extends Scheduler {
  configure(config) {
    this.burst = config.burst ?? 4;
    this.clock = 0;
    this.had = new Map();
    this.weights = new Map();
    for (const [tenant, weight] of Object.entries(config.weights ?? {})) {
      if (!(weight > 0)) throw new RangeError(`weights.${tenant} must be above 0`);
      this.weights.set(keyOf(tenant), weight);
    }
  }

  plan(round, ready) {
    // Each candidate's turn, as if those of its tenant before it had run.
    const following = new Map();
    const { arrivalUs, rows } = ready;
    const order = [];
    for (const i of ready.indices().sort((a, b) => arrivalUs[a] - arrivalUs[b])) {
      const tenant = ready.key("tenant", i);
      const turn = following.get(tenant) ?? this.turn(tenant);
      order.push([turn, i]);
      following.set(tenant, turn + rows[i] / this.weight(tenant));
    }
    order.sort((a, b) => a[0] - b[0]);
    this.clock = Math.max(this.clock, order[0][0]);
    return Plan.fire(ready.batch(order.map(([, i]) => i), round));
  }

  observe(event) {
    if (event.kind !== "done") return;
    const tenant = event.key("tenant");
    this.had.set(tenant, this.turn(tenant) + event.amount / this.weight(tenant));
    if (this.had.size > 4096) {
      const least = this.clock - this.burst;
      this.had = new Map([...this.had].filter(([, turn]) => turn > least));
    }
  }

  turn(tenant) {
    return Math.max(this.had.get(tenant) ?? this.clock, this.clock - this.burst / this.weight(tenant));
  }

  weight(tenant) {
    return this.weights.get(tenant) ?? 1;
  }
}
