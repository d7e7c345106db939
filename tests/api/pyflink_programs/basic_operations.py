import json

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor

PEOPLE = [
    (1, '{"name": "Flink", "tel": 123, "addr": {"country": "Germany", "city": "Berlin"}}'),
    (2, '{"name": "hello", "tel": 135, "addr": {"country": "China", "city": "Shanghai"}}'),
    (3, '{"name": "world", "tel": 124, "addr": {"country": "USA", "city": "NewYork"}}'),
    (4, '{"name": "PyFlink", "tel": 32, "addr": {"country": "China", "city": "Hangzhou"}}'),
]


class Seen(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.state = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        self.state.update((self.state.value() or 0) + 1)
        yield ctx.get_current_key(), self.state.value()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    people = env.from_collection(
        PEOPLE, type_info=Types.ROW_NAMED(["id", "info"], [Types.INT(), Types.STRING()])
    )
    china = people.filter(lambda row: json.loads(row.info)["addr"]["country"] == "China")
    china.map(lambda row: json.loads(row.info)["name"], Types.STRING()).print("filter")
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    countries = people.map(
        lambda row: (json.loads(row.info)["addr"]["country"], json.loads(row.info)["tel"]), pair
    )
    countries.key_by(lambda value: value[0]).reduce(
        lambda one, other: (one[0], one[1] + other[1])
    ).print("reduce")
    countries.key_by(lambda value: value[0]).process(
        Seen(), Types.TUPLE([Types.STRING(), Types.LONG()])
    ).print("state")
    env.execute("basic operations")
