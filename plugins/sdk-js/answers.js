// What a plug-in answers.

// An answer, put together by hand: Plan.fire(order).reject(3, 1).
export class Plan {
  #fire;
  #reject = [];
  #code = 0;
  #wake;

  constructor(fire, wake) {
    this.#fire = fire;
    this.#wake = wake;
  }

  // These run now, as one batch, in this order.
  static fire(order) {
    return new Plan([...order]);
  }

  // Nothing runs until something comes or completes.
  static wait() {
    return new Plan([]);
  }

  // Nothing runs until something comes or completes, or so many microseconds have passed.
  static waitUs(micros) {
    return new Plan([], (now) => now + micros);
  }

  // Nothing runs until something comes or completes, or this time of round.nowUs has come.
  static waitUntilUs(at) {
    return new Plan([], () => at);
  }

  // What the server would do without a plug-in.
  static default() {
    return new Plan();
  }

  // This one is refused now, and its sequence ends. One answer has one code, the last that is given. A plan that rejects is an answer of its own:
  // what it does not fire waits, even if it began as the default.
  reject(candidate, code) {
    this.#fire ??= [];
    this.#reject.push(candidate);
    this.#code = code;
    return this;
  }

  // In the words of the contract, at this time; undefined is what the server would do.
  decide(nowUs) {
    if (!this.#fire) return undefined;
    const wake = this.#wake?.(nowUs);
    const wakeUs = Number.isFinite(wake) ? BigInt(Math.max(0, Math.ceil(wake))) : undefined;
    return { fire: this.#fire, reject: this.#reject, rejectCode: this.#code, wakeUs };
  }
}

// What becomes of one sequence that waits for a slot.
export const Admission = {
  // It gets a free slot of this instance.
  take: (instance) => ({ tag: "take", val: instance }),
  // It gets the slot of this victim (an index), whose sequence ends as evicted.
  evict: (victim) => ({ tag: "evict", val: victim }),
  // It waits on.
  defer: () => ({ tag: "defer" }),
  // It is refused, with the plug-in's own number for why.
  refuse: (code) => ({ tag: "reject", val: code }),

  // Whoever waits longest takes what is free, from the instance with the most room.
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
