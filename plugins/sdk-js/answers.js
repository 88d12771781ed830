// Answers of a plug-in.

// An answer: Plan.fire(order).reject(3, 1).
export class Plan {
  #fire;
  #reject = [];
  #wake;

  constructor(fire, wake) {
    this.#fire = fire;
    this.#wake = wake;
  }

  // These candidates run now as one batch, in this order.
  static fire(order) {
    return new Plan([...order]);
  }

  // Nothing runs until a request arrives or completes.
  static wait() {
    return new Plan([]);
  }

  // Nothing runs for this many microseconds, or until a request arrives or completes.
  static waitUs(micros) {
    return new Plan([], (now) => now + micros);
  }

  // Nothing runs until this time of round.nowUs, or until a request arrives or completes.
  static waitUntilUs(at) {
    return new Plan([], () => at);
  }

  // Leaves the round to the built-in policy.
  static default() {
    return new Plan();
  }

  // Refuses a candidate, and ends its sequence. Clients read `code`, and what plugin.toml says of it. A plan that refuses a candidate decides the
  // whole round: candidates that it does not fire wait, even if it began as the default.
  reject(candidate, code) {
    return this.#refuse({ candidate, code, ends: true });
  }

  // Refuses this step of a candidate, and lets its sequence go on. A refused START ends its sequence all the same.
  shed(candidate, code) {
    return this.#refuse({ candidate, code, ends: false });
  }

  #refuse(rejection) {
    this.#fire ??= [];
    this.#reject.push(rejection);
    return this;
  }

  // The answer as the contract has it, at this time; undefined leaves the round to the built-in policy.
  decide(nowUs) {
    if (!this.#fire) return undefined;
    const wake = this.#wake?.(nowUs);
    const wakeUs = Number.isFinite(wake) ? BigInt(Math.max(0, Math.ceil(wake))) : undefined;
    return { fire: this.#fire, reject: this.#reject, wakeUs };
  }
}

// The answer for one sequence that waits for a slot.
export const Admission = {
  // It gets a free slot of this instance.
  take: (instance) => ({ tag: "take", val: instance }),
  // It gets the slot of this victim (an index), whose sequence ends as evicted.
  evict: (victim) => ({ tag: "evict", val: victim }),
  // It goes on waiting.
  defer: () => ({ tag: "defer" }),
  // Its START is refused, with the plug-in's code for the reason.
  reject: (code) => ({ tag: "reject", val: code }),

  // Gives the free slots to the sequences that wait longest, from the instance with the most room.
  inOrder(waiting, room) {
    const left = [...room];
    const said = [];
    while (said.length < waiting && left.some((free) => free > 0)) {
      const most = left.indexOf(Math.max(...left));
      left[most] -= 1;
      said.push(Admission.take(most));
    }
    return said;
  },
};
