"""PostgreSQL's system tables and functions, as an SQL script for the reader of tables (DuckDB): views over a hub's
catalog, tables without rows for what a hub does not have (indexes, constraints, …), and functions as macros.

They are views of SQL, so that whatever a tool asks about them is answered by the reader of tables itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

import pyarrow as pa

from headrace import __version__
from headrace.dataclass import dataclass
from headrace.server.postgres.protocol.types import TYPES, type_of
from headrace.server.postgres.tables.sources import ANSWERS, PUBLIC, Source, Tables

VERSION: Final = "14.0"
"""Of PostgreSQL, whose catalog this resembles: tools choose their questions by it."""
_SCHEMAS: Final[Mapping[str, int]] = {
    "pg_catalog": 11,
    PUBLIC: 2200,
    "information_schema": 13000,
    ANSWERS: 13001,
}
_FIRST_OID: Final = 16384
_RELATIONS: Final = pa.schema(
    [
        ("oid", pa.int64()),
        ("namespace", pa.int64()),
        ("schema", pa.string()),
        ("name", pa.string()),
        ("kind", pa.string()),
    ]
)
_COLUMNS: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("relation", "number", "type", "size")),
        *((name, pa.string()) for name in ("schema", "table", "name", "type_name", "internal")),
    ]
)


@dataclass(slots=True)
class SystemTables:
    """The tables that the views are over, made again when the catalog has changed."""

    tables: Tables
    _made: dict[str, tuple[int, pa.Table]] = field(default_factory=dict)
    """Each with the position of its catalog."""

    def sources(self) -> dict[str, Source]:
        """The tables by name."""
        return {
            "__relations": Source(_RELATIONS, lambda: self._current("__relations", _relations)),
            "__columns": Source(_COLUMNS, lambda: self._current("__columns", _columns)),
        }

    def _current(self, name: str, make: Callable[[Tables], pa.Table]) -> Iterator[pa.Table]:
        position = self.tables.hub.catalog.position
        if name not in self._made or self._made[name][0] != position:
            self._made[name] = position, make(self.tables)
        yield self._made[name][1]


def _relations(tables: Tables) -> pa.Table:
    rows = [
        (oid, _SCHEMAS[schema], schema, name, "v" if schema == ANSWERS else "r")
        for oid, schema, name in _numbered(tables)
    ]
    return _table(rows, _RELATIONS)


def _columns(tables: Tables) -> pa.Table:
    rows = [
        (oid, number, kind.oid, kind.size, schema, name, column.name, kind.name, kind.internal)
        for oid, schema, name in _numbered(tables)
        for number, column in enumerate(tables.columns_of(schema, name), 1)
        for kind in [type_of(column.type)]
    ]
    return _table(rows, _COLUMNS)


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )


def _numbered(tables: Tables) -> Iterator[tuple[int, str, str]]:
    """Each table with a number that stays the same while others are made and dropped."""
    used = set[int]()
    for schema, name in sorted(tables.names()):
        oid = _FIRST_OID + zlib.crc32(f"{schema}.{name}".encode()) % (1 << 31)
        while oid in used:
            oid += 1
        used.add(oid)
        yield oid, schema, name


_EMPTY: Final[Mapping[str, str]] = {
    "pg_index": "indexrelid indrelid indnatts indisunique:b indisprimary:b indisexclusion:b indimmediate:b indisclustered:b "
    "indisvalid:b indcheckxmin:b indisready:b indislive:b indisreplident:b indkey:i indclass:i indoption:i indcollation:i "
    "indexprs:t indpred:t indnkeyatts indnullsnotdistinct:b",
    "pg_constraint": "oid conname:t connamespace contype:t condeferrable:b condeferred:b convalidated:b conrelid contypid "
    "conindid conparentid confrelid confupdtype:t confdeltype:t confmatchtype:t conislocal:b coninhcount connoinherit:b "
    "conkey:i confkey:i conpfeqop:i conppeqop:i conffeqop:i conexclop:i conbin:t",
    "pg_attrdef": "oid adrelid adnum adbin:t",
    "pg_description": "objoid classoid objsubid description:t",
    "pg_shdescription": "objoid classoid description:t",
    "pg_inherits": "inhrelid inhparent inhseqno inhdetachpending:b",
    "pg_policy": "oid polname:t polrelid polcmd:t polpermissive:b polroles:i polqual:t polwithcheck:t",
    "pg_trigger": "oid tgrelid tgparentid tgname:t tgfoid tgtype tgenabled:t tgisinternal:b tgconstrrelid tgconstrindid "
    "tgconstraint tgdeferrable:b tginitdeferred:b",
    "pg_proc": "oid proname:t pronamespace proowner prolang prokind:t prosecdef:b proisstrict:b proretset:b provolatile:t "
    "pronargs prorettype proargtypes:i proallargtypes:i proargmodes:l proargnames:l proacl:l prosrc:t",
    "pg_depend": "classid objid objsubid refclassid refobjid refobjsubid deptype:t",
    "pg_collation": "oid collname:t collnamespace collowner collprovider:t collisdeterministic:b collencoding collcollate:t "
    "collctype:t",
    "pg_enum": "oid enumtypid enumsortorder enumlabel:t",
    "pg_range": "rngtypid rngsubtype rngmultitypid rngcollation rngsubopc",
    "pg_auth_members": "oid roleid `member` grantor admin_option:b",
    "pg_tablespace": "oid spcname:t spcowner",
    "pg_extension": "oid extname:t extowner extnamespace extrelocatable:b extversion:t",
    "pg_event_trigger": "oid evtname:t evtevent:t evtowner evtfoid evtenabled:t",
    "pg_foreign_table": "ftrelid ftserver ftoptions:l",
    "pg_foreign_server": "oid srvname:t srvowner srvfdw",
    "pg_foreign_data_wrapper": "oid fdwname:t fdwowner",
    "pg_rewrite": "oid rulename:t ev_class ev_type:t ev_enabled:t is_instead:b",
    "pg_rules": "schemaname:t tablename:t rulename:t definition:t",
    "pg_sequence": "seqrelid seqtypid seqstart seqincrement seqmax seqmin seqcache seqcycle:b",
    "pg_sequences": "schemaname:t sequencename:t sequenceowner:t",
    "pg_language": "oid lanname:t lanowner",
    "pg_publication": "oid pubname:t pubowner puballtables:b pubinsert:b pubupdate:b pubdelete:b "
    "pubtruncate:b pubviaroot:b",
    "pg_publication_rel": "oid prpubid prrelid prqual:t prattrs:i",
    "pg_publication_namespace": "oid pnpubid pnnspid",
    "pg_statistic_ext": "oid stxrelid stxname:t stxnamespace stxowner stxstattarget stxkeys:i stxkind:l",
    "pg_partitioned_table": "partrelid partstrat:t partnatts",
    "pg_operator": "oid oprname:t oprnamespace",
    "pg_opclass": "oid opcname:t opcnamespace opcmethod opcdefault:b opcintype opcfamily opcowner",
    "pg_aggregate": "aggfnoid",
    "pg_cast": "oid castsource casttarget",
    "pg_indexes": "schemaname:t tablename:t indexname:t tablespace:t indexdef:t",
    "pg_matviews": "schemaname:t matviewname:t matviewowner:t tablespace:t hasindexes:b ispopulated:b definition:t",
    "pg_locks": "locktype:t database relation pid mode:t granted:b",
    "pg_stat_activity": "datid datname:t pid usename:t application_name:t state:t query:t",
    "pg_stat_user_tables": "relid schemaname:t relname:t n_live_tup",
    "pg_seclabel": "objoid classoid objsubid provider:t label:t",
    "info_schema.table_constraints": "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t "
    "table_name:t constraint_type:t is_deferrable:t initially_deferred:t",
    "info_schema.key_column_usage": "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t "
    "table_name:t column_name:t ordinal_position position_in_unique_constraint",
    "info_schema.referential_constraints": "constraint_catalog:t constraint_schema:t constraint_name:t "
    "unique_constraint_schema:t unique_constraint_name:t update_rule:t delete_rule:t",
    "info_schema.constraint_column_usage": "table_catalog:t table_schema:t table_name:t column_name:t constraint_schema:t "
    "constraint_name:t",
    "info_schema.routines": "specific_schema:t specific_name:t routine_schema:t routine_name:t routine_type:t data_type:t",
    "info_schema.triggers": "trigger_schema:t trigger_name:t event_object_schema:t event_object_table:t",
    "info_schema.sequences": "sequence_schema:t sequence_name:t",
}
"""Tables without rows, and their columns: numbers, or texts (t), booleans (b), lists of texts (l) and of numbers (i)."""
_KINDS: Final = {"": "BIGINT", "t": "VARCHAR", "b": "BOOLEAN", "l": "VARCHAR[]", "i": "BIGINT[]"}

_VIEWS: Final = """
CREATE VIEW pg_namespace AS SELECT unnest([{schema_oids}]) oid, unnest([{schema_names}]) nspname, 10 nspowner, NULL::VARCHAR[] nspacl;
CREATE VIEW pg_class AS SELECT oid, name relname, namespace relnamespace, 0 reltype, 0 reloftype, 10 relowner, 0 relam,
  0 relfilenode, 0 reltablespace, 0 relpages, -1::FLOAT reltuples, 0 relallvisible, 0 reltoastrelid, false relhasindex,
  false relisshared, 'p' relpersistence, kind relkind, 0::SMALLINT relnatts, 0::SMALLINT relchecks, false relhasrules,
  false relhastriggers, false relhassubclass, false relrowsecurity, false relforcerowsecurity, true relispopulated,
  'n' relreplident, false relispartition, false relhasoids, NULL::VARCHAR[] relacl, NULL::VARCHAR[] reloptions,
  NULL::VARCHAR relpartbound, 0 xmin FROM temp.main.__relations;
CREATE VIEW pg_attribute AS SELECT relation attrelid, name attname, type atttypid, -1 attstattarget, size::SMALLINT attlen,
  number::SMALLINT attnum, 0 attndims, -1 attcacheoff, -1 atttypmod, false attbyval, 'p' attstorage, 'i' attalign,
  false attnotnull, false atthasdef, false atthasmissing, '' attidentity, '' attgenerated, '' attcompression,
  false attisdropped, true attislocal, 0 attinhcount, 0 attcollation, NULL::VARCHAR[] attacl, NULL::VARCHAR[] attoptions,
  NULL::VARCHAR[] attfdwoptions FROM temp.main.__columns;
CREATE VIEW pg_type AS SELECT oid, typname, 11 typnamespace, 10 typowner, typlen, false typbyval, 'b' typtype,
  CASE WHEN typelem <> 0 THEN 'A' WHEN oid IN (20, 21, 23, 700, 701, 1700) THEN 'N' WHEN oid IN (25, 1043) THEN 'S'
  WHEN oid IN (1082, 1083, 1114, 1184) THEN 'D' WHEN oid = 16 THEN 'B' ELSE 'U' END typcategory, false typispreferred,
  true typisdefined, ',' typdelim, 0 typrelid, typelem, typarray, 'array_in' typinput, 'array_out' typoutput,
  CASE WHEN typelem <> 0 THEN 'array_recv' ELSE 'recv' END typreceive, 'send' typsend, 'i' typalign, 'p' typstorage,
  false typnotnull, 0 typbasetype, -1 typtypmod, 0 typndims, 0 typcollation, NULL::VARCHAR typdefault, NULL::VARCHAR[] typacl
  FROM (VALUES {types}) t(oid, typname, typlen, typelem, typarray);
CREATE VIEW pg_database AS SELECT 1 oid, current_database() datname, 10 datdba, 6 encoding, 'C' datcollate, 'C' datctype,
  false datistemplate, true datallowconn, -1 datconnlimit, 0 dattablespace, NULL::VARCHAR[] datacl;
CREATE VIEW pg_roles AS SELECT 10 oid, 'headrace' rolname, true rolsuper, true rolinherit, false rolcreaterole,
  false rolcreatedb, true rolcanlogin, false rolreplication, -1 rolconnlimit, NULL::TIMESTAMPTZ rolvaliduntil,
  false rolbypassrls, NULL::VARCHAR[] rolconfig;
CREATE VIEW pg_authid AS SELECT * FROM pg_roles;
CREATE VIEW pg_user AS SELECT rolname usename, oid usesysid, rolcreatedb usecreatedb, rolsuper usesuper FROM pg_roles;
CREATE VIEW pg_am AS SELECT 2 oid, 'heap' amname, 't' amtype;
CREATE VIEW pg_settings AS SELECT 'server_version' name, '{version}' setting;
CREATE VIEW pg_tables AS SELECT schema schemaname, name tablename, 'headrace' tableowner, NULL::VARCHAR tablespace,
  false hasindexes, false hasrules, false hastriggers FROM temp.main.__relations WHERE kind = 'r';
CREATE VIEW pg_views AS SELECT schema schemaname, name viewname, 'headrace' viewowner, 'INVOKE ' || name definition
  FROM temp.main.__relations WHERE kind = 'v';
CREATE VIEW info_schema.schemata AS SELECT current_database() catalog_name, nspname schema_name, 'headrace' schema_owner
  FROM pg_namespace;
CREATE VIEW info_schema.tables AS SELECT current_database() table_catalog, schema table_schema, name table_name,
  CASE kind WHEN 'r' THEN 'BASE TABLE' ELSE 'VIEW' END table_type, NULL::VARCHAR self_referencing_column_name,
  'NO' is_insertable_into, 'NO' is_typed, NULL::VARCHAR commit_action FROM temp.main.__relations;
CREATE VIEW info_schema.views AS SELECT current_database() table_catalog, schema table_schema, name table_name,
  'INVOKE ' || name view_definition, 'NONE' check_option, 'NO' is_updatable, 'NO' is_insertable_into
  FROM temp.main.__relations WHERE kind = 'v';
CREATE VIEW info_schema.columns AS SELECT current_database() table_catalog, schema table_schema, "table" table_name,
  name column_name, number::INTEGER ordinal_position, NULL::VARCHAR column_default, 'YES' is_nullable, type_name data_type,
  NULL::INTEGER character_maximum_length, NULL::INTEGER character_octet_length,
  CASE type WHEN 20 THEN 64 WHEN 23 THEN 32 WHEN 21 THEN 16 WHEN 701 THEN 53 WHEN 700 THEN 24 END numeric_precision,
  CASE WHEN type IN (20, 21, 23) THEN 2 END numeric_precision_radix, CASE WHEN type IN (20, 21, 23) THEN 0 END numeric_scale,
  CASE WHEN type IN (1082) THEN 0 WHEN type IN (1114, 1184, 1083, 1186) THEN 6 END datetime_precision,
  NULL::VARCHAR collation_name, NULL::VARCHAR domain_name, current_database() udt_catalog, 'pg_catalog' udt_schema,
  internal udt_name, 'NO' is_identity, 'NEVER' is_generated, 'NO' is_updatable FROM temp.main.__columns;
"""

_FUNCTIONS: Final[Mapping[str, str]] = {
    '"current_user"()': "{user}",
    '"session_user"()': "{user}",
    '"current_role"()': "{user}",
    '"user"()': "{user}",
    "version()": "'PostgreSQL {version} (Headrace {headrace})'",
    "oid_of(x)": "(SELECT min(oid) FROM (SELECT oid, relname FROM pg_class WHERE relnamespace = CASE WHEN starts_with(x, 'answers.') THEN 13001 ELSE 2200 END UNION ALL "
    "VALUES (1259, 'pg_class'), (2615, 'pg_namespace'), (1247, 'pg_type'), (1249, 'pg_attribute'), (1255, 'pg_proc'), "
    "(2606, 'pg_constraint')) c(oid, relname) WHERE relname = replace(string_split(x, '.')[-1], '\"', ''))",
    "to_regclass(x)": "oid_of(x)",
    "to_regtype(x)": "(SELECT min(oid) FROM pg_type WHERE typname = x)",
    "format_type(t, m)": "CASE t {names} ELSE '???' END",
    "pg_table_is_visible(x)": "x IN (SELECT oid FROM pg_class WHERE relnamespace = 2200)",
    "pg_type_is_visible(x)": "true",
    "pg_function_is_visible(x)": "true",
    "pg_collation_is_visible(x)": "true",
    "pg_operator_is_visible(x)": "true",
    "pg_get_userbyid(x)": "'headrace'",
    "pg_encoding_to_char(x)": "'UTF8'",
    "pg_get_expr(a, b)|pg_get_expr(a, b, c)": "NULL::VARCHAR",
    "pg_get_indexdef(a)|pg_get_indexdef(a, b, c)": "NULL::VARCHAR",
    "pg_get_constraintdef(a)|pg_get_constraintdef(a, b)": "NULL::VARCHAR",
    "pg_get_viewdef(a)|pg_get_viewdef(a, b)": "(SELECT 'INVOKE ' || relname FROM pg_class WHERE oid = a::BIGINT)",
    "pg_get_serial_sequence(a, b)": "NULL::VARCHAR",
    "pg_get_partkeydef(a)": "NULL::VARCHAR",
    "pg_get_statisticsobjdef_columns(a)": "NULL::VARCHAR",
    "pg_get_function_result(a)": "NULL::VARCHAR",
    "pg_get_function_identity_arguments(a)": "NULL::VARCHAR",
    "pg_get_function_arguments(a)": "NULL::VARCHAR",
    "pg_get_triggerdef(a)|pg_get_triggerdef(a, b)": "NULL::VARCHAR",
    "pg_get_ruledef(a)|pg_get_ruledef(a, b)": "NULL::VARCHAR",
    "pg_relation_is_publishable(a)": "false",
    "pg_relation_size(a)|pg_relation_size(a, b)": "0::BIGINT",
    "pg_total_relation_size(a)": "0::BIGINT",
    "pg_table_size(a)": "0::BIGINT",
    "pg_indexes_size(a)": "0::BIGINT",
    "pg_database_size(a)": "0::BIGINT",
    "pg_tablespace_location(a)": "''",
    "pg_backend_pid()": "0",
    "pg_is_in_recovery()": "false",
    "pg_my_temp_schema()": "0",
    "pg_is_other_temp_schema(a)": "false",
    "info_schema._pg_expandarray(a)": "{{'x': NULL::INTEGER, 'n': NULL::INTEGER}}",
    "quote_ident(x)": "CASE WHEN regexp_full_match(x, '[a-z_][a-z0-9_]*') THEN x "
    "ELSE '\"' || replace(x, '\"', '\"\"') || '\"' END",
    "quote_literal(x)": "'''' || replace(x, '''', '''''') || ''''",
    "parse_ident(x)": "[CASE WHEN starts_with(p, '\"') THEN p[2:-2] ELSE lower(p) END FOR p IN string_split(x, '.')]",
    "array_upper(a, n)": "len(a)",
    "array_lower(a, n)": "1",
    "shobj_description(a, b)": "NULL::VARCHAR",
    "set_config(a, b, c)": "b",
    "current_setting(x)|current_setting(x, m)": "CASE lower(x) WHEN 'server_version' THEN '{version}' "
    "WHEN 'server_version_num' THEN '140000' WHEN 'search_path' THEN 'public' WHEN 'timezone' THEN 'UTC' "
    "WHEN 'standard_conforming_strings' THEN 'on' WHEN 'max_index_keys' THEN '32' WHEN 'server_encoding' THEN 'UTF8' END",
    "current_schemas(x)": "CASE WHEN x THEN ['pg_catalog', 'public'] ELSE ['public'] END",
    "has_database_privilege(a, b)|has_database_privilege(a, b, c)": "true",
}
_ALIASES: Final = (
    "regclass",
    "regproc",
    "regtype",
    "regnamespace",
    "regprocedure",
    "name",
    "xid",
    "int2vector",
    "oidvector",
)


def script(user: str) -> str:
    """The SQL that makes these schemas in a new database of the reader, for a user of that name."""
    types = [(kind.oid, kind.internal, kind.size, 0, kind.array) for kind in TYPES]
    types += [(kind.array, f"_{kind.internal}", -1, kind.oid, 0) for kind in TYPES if kind.array]
    types += [(26, "oid", 4, 0, 0), (19, "name", 64, 0, 0), (18, "char", 1, 0, 0), (1042, "bpchar", -1, 0, 0)]
    facts = {
        "schema_oids": ", ".join(map(str, _SCHEMAS.values())),
        "schema_names": ", ".join(f"'{name}'" for name in _SCHEMAS),
        "types": ", ".join(map(str, types)),
        "names": " ".join(
            f"WHEN {oid} THEN '{name}'"
            for kind in TYPES
            for oid, name in ((kind.oid, kind.name), (kind.array, f"{kind.name}[]"))
            if oid
        ),
        "version": VERSION,
        "headrace": __version__,
        "user": "'" + user.replace("'", "''") + "'",
    }
    statements = [f"CREATE TYPE {name} AS VARCHAR" for name in _ALIASES]
    statements += [f"CREATE TABLE {name} ({_columns_of(columns)})" for name, columns in _EMPTY.items()]
    functions = [
        "CREATE MACRO "
        + heads.partition("(")[0]
        + ", ".join(f"({head.partition('(')[2]} AS {body}" for head in heads.split("|"))
        for heads, body in _FUNCTIONS.items()
    ]
    views = _VIEWS.format(**facts)
    return (
        ";\n".join(statements) + ";" + views + ";\n".join(function.format(**facts) for function in functions)
    )


def _columns_of(columns: str) -> str:
    """Columns of a table from their short form."""
    pairs = (column.partition(":") for column in columns.replace("`", "").split())
    return ", ".join(f'"{name}" {_KINDS[kind]}' for name, _, kind in pairs)
