import json

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment

ORDERS = [
    (1, '{"customer": {"country": "PT"}, "amount": 10}'),
    (2, '{"customer": {"country": "NL"}, "amount": 25}'),
    (3, '{"customer": {"country": "PT"}, "amount": 5}'),
]


def raise_amount(order):
    details = json.loads(order.details)
    details["amount"] += 1
    return order.number, json.dumps(details)


def country_and_amount(order):
    details = json.loads(order.details)
    return details["customer"]["country"], details["amount"]


def run():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    orders = env.from_collection(
        collection=ORDERS,
        type_info=Types.ROW_NAMED(["number", "details"], [Types.INT(), Types.STRING()]),
    )
    orders.filter(lambda order: order.number == 2).map(raise_amount).print()
    env.execute()
    orders.map(country_and_amount).key_by(lambda pair: pair[0]).sum(1).print("sum")
    env.execute()


if __name__ == "__main__":
    run()
