"""A small catalog for the tests of this room: what a query may name, as the binder sees it."""

import pickle

from headrace.algebra.query import Query
from headrace.algebra.windows.user_code import Code
from headrace.catalog.definitions import (
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    WindowDefinition,
)
from headrace.catalog.system_streams import built_in
from headrace.examples.windows import Months
from headrace.language.binder.query_binder import bind_query
from headrace.language.statements.parse_script import parse_script
from headrace.language.statements.statement import CreateQuery, CreateRelation, CreateStream

SCRIPT = """
CREATE STREAM bids (auction BIGINT, bidder BIGINT, price DOUBLE, at TIMESTAMP)
  USING csv OPTIONS (path 'data/bids', header 'true')
  TIMESTAMP BY at SLACK INTERVAL 5 SECONDS;
CREATE STREAM events (k STRING, n INT, d DECIMAL(10,2), ok BOOLEAN, day DATE, ntz TIMESTAMP_NTZ, `odd name` INT) USING push;
CREATE RELATION category (id BIGINT, name STRING) USING csv OPTIONS (path 'data/category.csv', header 'true');
CREATE RELATION people (id BIGINT, name STRING, city STRING) USING parquet OPTIONS (path 'data/people');
CREATE QUERY dear AS
  SELECT auction, COUNT(*) AS n, MAX(price) AS top
  FROM bids [RANGE 10 MINUTES SLIDE 1 MINUTE] WHERE price > 100 GROUP BY auction;
CREATE QUERY counted AS SELECT COUNT(*) AS n FROM bids;
"""


class Catalog:
    """Streams, relations and bound queries by lower-case name."""

    former_names = False

    def __init__(self, script: str = SCRIPT) -> None:
        self.streams: dict[str, StreamDefinition] = {}
        self.relations: dict[str, RelationDefinition] = {}
        self.queries: dict[str, tuple[QueryDefinition, Query]] = {}
        self.windows = {"months": WindowDefinition("months", Code(pickle.dumps(Months)), "")}
        for statement in parse_script(script):
            match statement:
                case CreateStream(definition=stream):
                    self.streams[stream.name.lower()] = stream
                case CreateRelation(definition=relation):
                    self.relations[relation.name.lower()] = relation
                case CreateQuery(definition=query, select=select):
                    self.queries[query.name.lower()] = (query, bind_query(select, self, script))

    def stream(self, name: str) -> StreamDefinition | None:
        return self.streams.get(name.lower()) or built_in(name)

    def relation(self, name: str) -> RelationDefinition | None:
        return self.relations.get(name.lower())

    def query(self, name: str) -> tuple[QueryDefinition, Query] | None:
        return self.queries.get(name.lower())

    def window(self, name: str) -> WindowDefinition | None:
        return self.windows.get(name.lower())

    def built_in(self) -> list[str]:
        return []

    def known(self) -> list[str]:
        definitions = [
            *self.streams.values(),
            *self.relations.values(),
            *(query for query, _ in self.queries.values()),
        ]
        return [definition.name for definition in definitions]
