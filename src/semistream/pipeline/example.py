"""The pipeline file that ``semistream init`` writes: the retail example, each field explained.

Two commands make the data that it reads::

    semistream generate retail --relation-rows 200000 --relation-out products.parquet \
        --out sales --rows 50000 --files 5
    semistream run pipeline.yml
"""

from pathlib import Path

from semistream.errors import PipelineError

EXAMPLE = """\
# yaml-language-server: $schema=pipeline.schema.json
# A pipeline of semistream: sales are enriched with the product master. To make its data:
#   semistream generate retail --relation-rows 200000 --relation-out products.parquet \\
#       --out sales --rows 50000 --files 5
# Then: semistream run pipeline.yml --dry-run     what it will do
#       semistream run pipeline.yml               until it ends, or SIGTERM ends it in order
# Relative paths begin at this file's folder.

name: sales                      # of the query and of the Spark application
storage: storage                 # a folder for the checkpoint and the dead letters
configuration:                   # settings of Spark
  spark.master: local[2]
  spark.ui.enabled: "false"
  # A secret is named, not written: ${env:NAME} or ${file:PATH}

source:
  format: files                  # or kafka, delta, rate, workload
  path: sales                    # a folder that files arrive in
  max_files_per_trigger: 2       # of a micro-batch
# source:
#   format: kafka
#   servers: broker:9092
#   topic: sales
#   options: {kafka.sasl.jaas.config: "${env:KAFKA_JAAS}"}

parse:
  format: parquet                # or json, csv, avro, orc; of Kafka json, csv, avro
  # schema: "product_id long, quantity int, sale_price double"

relations:
  products:
    location: products.rel       # where the relation is, and what to build it from
    source: products.parquet     # if it is not there yet
    key: product_id

steps:                           # one after the other
  - enrich:                      # the arguments of ss.enrich
      relation: products
      on: product_id
      columns: [surrogate_key, supplier_id]
      on_missing: keep           # or drop, dead_letters, hold (with a grace period)
  - add_columns:                 # SQL expressions
      revenue: sale_price * quantity
  # - where: revenue > 0
  # - mark_new: {relation: products, on: product_id}
  # - mark_duplicates: {on: [customer_id, product_id]}
  # - surrogate_key: {relation: keys.rel, on: [source, code], to: product_key}

sink:
  format: parquet                # or delta, sql, kafka
  path: enriched
# sink:
#   format: sql                  # one transaction for each micro-batch, exactly once
#   url: postgresql://writer@db.example/warehouse     # the password is in PGPASSWORD or ~/.pgpass
#   table: enriched_sales

memory: 64MB                     # of all joins together
trigger: available now           # take what there is and end; or a time such as 10 seconds
dead_letters:                    # rows that cannot be parsed or joined, with the reason
  limit: 5%                      # of a micro-batch; more of them stop the query
"""


def write_example(path: Path) -> None:
    """Write the pipeline file; one that is there is not replaced."""
    try:
        with path.open("x") as file:
            file.write(EXAMPLE)
    except FileExistsError:
        raise PipelineError(f"{path} is there already; name another file") from None
