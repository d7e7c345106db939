from pyflink.common import Time
from pyflink.common.typeinfo import Types
from pyflink.datastream import OutputTag, StreamExecutionEnvironment
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import StateTtlConfig, ValueStateDescriptor

REFUSED = OutputTag("refused", Types.STRING())
PAYMENTS = [("Ada", 40.0), ("Bob", 90.5), ("Ada", 70.0), ("Bob", 5.0), ("Ada", 50.0)]


class Spend(KeyedProcessFunction):
    def __init__(self):
        self.spent = None

    def open(self, runtime_context: RuntimeContext):
        descriptor = ValueStateDescriptor("spent", Types.FLOAT())
        ttl = (
            StateTtlConfig.new_builder(Time.hours(1))
            .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
            .disable_cleanup_in_background()
            .build()
        )
        descriptor.enable_time_to_live(ttl)
        self.spent = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        spent = (self.spent.value() or 0) + value[1]
        if spent > 100:
            yield REFUSED, f"{ctx.get_current_key()} cannot pay {value[1]}"
        else:
            self.spent.update(spent)
            yield value[0], spent


def run():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    payments = env.from_collection(PAYMENTS, Types.TUPLE([Types.STRING(), Types.FLOAT()]))
    paid = payments.key_by(lambda payment: payment[0], key_type=Types.STRING()).process(
        Spend(), output_type=Types.TUPLE([Types.STRING(), Types.FLOAT()])
    )
    paid.print()
    paid.get_side_output(REFUSED).print()
    env.execute("spending limit")


if __name__ == "__main__":
    run()
