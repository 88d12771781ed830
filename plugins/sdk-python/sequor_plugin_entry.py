"""The exports of a component: the class `Plugin` of plugin.py, behind the generated types of the contract."""

from componentize_py_types import Err
from wit_world.exports import scheduler as contract

from plugin import Plugin
from sequor_plugin.glue import Glue, words

_glue = Glue(Plugin())

_ADMISSIONS = {
    "take": contract.Admission_Take, "evict": contract.Admission_Evict, "reject": contract.Admission_Reject,
    "defer": lambda _: contract.Admission_Defer(),
}


class Scheduler:
    """The exported interface."""

    def configure(self, config, model):
        _or_err(lambda: _glue.configure(config, model), _glue.plugin.configure)

    def plan(self, round, ready, events):
        plan = _glue.plan(round, ready, events)
        if plan is None or plan.fire is None:
            return None
        rejected = [contract.Rejection(*one) for one in plan.rejected]
        return contract.Decision(plan.fire, rejected, plan.wake_us(round.now_us))

    def admit(self, round, waiting, room, victims, events):
        return [_ADMISSIONS[said.what](said.number) for said in _glue.admit(round, waiting, room, victims, events)]

    def observe(self, events):
        _glue.observe(events)

    def save(self):
        return _glue.save()

    def restore(self, saved):
        _or_err(lambda: _glue.restore(saved), _glue.plugin.restore)


def _or_err(call, hook):
    try:
        call()
    except Exception as error:
        raise Err(words(error, hook))
