"""bank's month, by Airflow: the predictions of the month's rows, once the partner has released its part."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.sdk import DAG

FOLDER = "/srv/bank"
WAITING = 5
"""Exit code of `cutlayer exchange` while a file of another party is missing; the sensor then asks again."""

with DAG(
    dag_id="cutlayer_bank",
    schedule="@monthly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # one round at a time: each goes on from the files of its own
    default_args={"retries": 2, "retry_delay": timedelta(minutes=10)},
) as dag:
    exchange = BashSensor(
        task_id="exchange",
        bash_command=(
            f"cd {FOLDER} && "
            "cutlayer exchange job.yaml --as bank --local bank.yaml --folder shared --round {{ ds[:7] }} "
            "--data new.parquet --out scores-{{ ds[:7] }}.parquet --json"
        ),
        retry_exit_code=WAITING,
        mode="reschedule",  # no worker is taken up between two questions
        poke_interval=3600,
        timeout=timedelta(days=10).total_seconds(),
    )
    ledger = BashOperator(task_id="ledger", bash_command="cutlayer ledger .cutlayer --json", cwd=FOLDER)
    exchange >> ledger
