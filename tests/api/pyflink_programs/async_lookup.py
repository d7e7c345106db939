import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment
from pyflink.datastream.async_retry_predicates import empty_result_predicate
from pyflink.datastream.async_retry_strategies import FixedDelayRetryStrategy


class Lookup(AsyncFunction[int, int]):
    def open(self, runtime_context):
        self.asked = set()

    async def async_invoke(self, value):
        await asyncio.sleep(0.001)
        if value % 2 and value not in self.asked:
            self.asked.add(value)
            return []
        return [value * 10]

    def timeout(self, value):
        return [-1]


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_collection([1, 2, 3, 4], type_info=Types.INT())
    strategy = FixedDelayRetryStrategy(3, 1, empty_result_predicate, None)
    AsyncDataStream.ordered_wait_with_retry(
        numbers, Lookup(), Time.seconds(60), strategy, 2, Types.INT()
    ).print()
    env.execute("async lookup")
