// Whose deadline is next goes first. Requests without one come last, in the order in which they became ready.
import { NEVER, Plan, Scheduler, host } from "./sdk/index.js";

export class Plugin extends Scheduler {
  marginUs = 0;

  /** @type {Scheduler["configure"]} */
  configure(config, model) {
    this.marginUs = config.margin_us ?? 0;
    host.info(`deciding for ${model.name} ${model.version}`);
  }

  /** @type {Scheduler["plan"]} */
  plan(round, ready) {
    // Deadlines that cannot be kept any more count as none.
    const soonest = round.nowUs + this.marginUs;
    const due = ready.deadlineUs.map((at) => (at >= soonest ? at : NEVER));
    return Plan.fire(ready.batch(ready.sorted(due), round));
  }
}
