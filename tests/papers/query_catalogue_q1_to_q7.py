"""Queries Q1 to Q7 of Babu's thesis on adaptive query processing (2005), histories made by hand, and what is emitted over them.

Every answer is worked out from the definitions, step by step, next to its lines:

    [RANGE d] at τ       rows with τ - d ≤ t ≤ τ: a row is there at t + d and has left a microsecond later, which reads 600.000001
    [ROWS n] at τ        the last n rows with t ≤ τ, those of one instant in the order in which they came
    a relation           R(τ), emitted as its changes: `+` what is in R(τ) and not in R(τ-1), `-` the reverse, as bags
    ISTREAM, DSTREAM     only insertions, only retractions, without signs; a bare stream means ISTREAM over all of its rows
    nothing              is emitted at an instant at which retractions equal insertions

Windows are as long as in print where they are windows of time, and shorter where they are windows of rows.
"""

from __future__ import annotations

import re

from tests.papers.query_catalogue import Asked, Past

# ------------------------------------------------------------------------------------------- Q1: a sum over three links

LINKS = Past(
    {"C": "pid INT, size INT", "B": "pid INT", "O": "pid INT"},
    """
      0 C 1 100;  60 B 1;  120 O 1;  180 C 1 40;  240 C 2 7;  300 B 1;  600 O 1;  650 C null 1000;  650 B null;  650 O null
    700 O 2;  840 B 2;  841 C 3 1
    """,
    {
        "Q1": Asked(
            """SELECT SUM(C.size) AS total FROM C [RANGE 10 MINUTES], B [RANGE 10 MINUTES], O [RANGE 10 MINUTES]
               WHERE C.pid = B.pid AND B.pid = O.pid""",
            """
            0:          +null         # the first row of any stream: from now on there is a row, and nothing to add up
            120:        -null +100    # C@0, B@60, O@120
            180:        -100 +140     # C@180 meets the same two; C@240 (packet 2) meets nobody
            300:        -140 +280     # a second B: (100 + 40) · 2
            600:        -280 +560     # a second O, and C@0 is still there, at its 600th second: (100 + 40) · 2 · 2
            600.000001: -560 +160     # C@0 has left: 40 · 2 · 2
            660.000001: -160 +80      # B@60 has left; NULLs, at 650, are equal to none
            720.000001: -80 +40       # O@120 has left
            780.000001: -40 +null     # C@180 has left; packet 2: C@240 and O@700, no B
            840:        -null +7      # B@840: C@240 is there for the last time
            840.000001: -7 +null
            """,
        )
    },
)

# --------------------------------------------------------------------------- Q2 and Q3: what a bare stream in FROM means

PASSED = """
    2: 11,19,41,2
    4: 12,0,50,4 12,0,50,4   # two equal rows are two
    7: 99,-1,41,7            # what is emitted does not end: nothing leaves [ROWS UNBOUNDED]
"""
FILTERED = Past(
    {"S": "A INT, B INT, C INT"},
    """
    1 S 10 19 41;  2 S 11 19 41;  3 S 11 20 41;  4 S 12 0 50;  4 S 12 0 50;  4 S 12 0 40;  5 S null 0 50;  6 S 12 null 50
    7 S 99 -1 41;  8 S 1 1 1
    """,
    {
        "Q2": Asked(
            "SELECT ISTREAM(*) FROM S [ROWS UNBOUNDED] WHERE S.A > 10 AND S.B < 20 AND S.C > 40", PASSED
        ),
        "Q2 around it": Asked(
            "ISTREAM(SELECT * FROM S [ROWS UNBOUNDED] WHERE S.A > 10 AND S.B < 20 AND S.C > 40)", PASSED
        ),
        "Q3": Asked("SELECT * FROM S WHERE S.A > 10 AND S.B < 20 AND S.C > 40", PASSED),
    },
)

# ---------------------------------------------------------------- Q4, Q4b: a window of rows joined with a window of time

WHERE_Q4 = "WHERE S1.A = S2.A AND S1.A > 10 AND S1.B < 20"
WINDOWS_Q4 = "S1 [ROWS 3], S2 [RANGE 2 MINUTES]"
PAIRS = Past(
    {"S1": "A INT, B INT", "S2": "A INT, C INT"},
    """
      1 S1 11 5;  2 S2 11 100;  10 S1 12 19;  10 S2 12 200;  20 S1 12 20;  30 S1 13 1;  40 S1 12 3;  40 S1 11 4
     45 S1 10 1;  50 S2 10 300;  122 S1 11 6;  140 S1 11 0;  140 S1 11 1;  140 S1 11 2;  140 S1 14 9;  140 S2 11 400
    150 S2 11 500;  300 S2 99 0
    """,
    {
        "Q4": Asked(
            f"SELECT S1.A, S1.B, S2.C FROM {WINDOWS_Q4} {WHERE_Q4}",
            """
            2:          +11,5,100               # S1: (11,5). S2: (11,100)@2
            10:         +12,19,200              # both rows at one instant
                                                # 20: (12,20) does not pass, and takes a place all the same
            30:         -11,5,100               # S1: (12,19) (12,20) (13,1): (11,5) is the fourth last
            40:         -12,19,200 +12,3,200 +11,4,100   # two rows at once: S1: (13,1) (12,3) (11,4); S2: @2 and @10
                                                # 45, 50: (10,1) and (10,300) meet, but 10 is not above 10. S1: (12,3) (11,4) (10,1)
            122:        -12,3,200 +11,6,100     # S1: (11,4) (10,1) (11,6); S2@2 is there for the last time
            122.000001: -11,4,100 -11,6,100     # S2@2 has left; @10 leaves at 130.000001 and met nobody any more
            140:        +11,1,400 +11,2,400     # four at once, S1: (11,1) (11,2) (14,9): (11,0) was in no R(τ)
            150:        +11,1,500 +11,2,500
            260.000001: -11,1,400 -11,2,400
            270.000001: -11,1,500 -11,2,500
            """,
        ),
        "Q4b": Asked(
            f"SELECT ISTREAM(S1.A) FROM {WINDOWS_Q4} {WHERE_Q4}",
            """
            2: 11
            10: 12
                            # 30: 11 goes
            40: 11          # {12} becomes {12, 11}: another 12, the same value
            122: 11         # {12, 11} becomes {11, 11}
                            # 122.000001: {}
            140: 11 11      # two rows
            150: 11 11      # {11, 11} becomes four: as many as are new
            """,
        ),
        "Q4b of what goes": Asked(
            f"SELECT DSTREAM(S1.A) FROM {WINDOWS_Q4} {WHERE_Q4}",
            """
            30: 11                    # {11, 12} becomes {12}
            122: 12                   # {12, 11} becomes {11, 11}
            122.000001: 11 11
            260.000001: 11 11         # of four
            270.000001: 11 11
            """,
        ),
        "Q4b of this instant": Asked(
            "SELECT RSTREAM(A) FROM S1 [NOW] WHERE S1.A > 10 AND S1.B < 20",
            """
            1: 11
            10: 12
            30: 13                    # at 20 there is a row, but none that passes
            40: 12 11
            122: 11
            140: 11 11 11 14          # all of the instant, and never again
            """,
        ),
        "Q5": Asked(
            "SELECT A, MAX(B) AS top FROM S1 [ROWS 3] GROUP BY A",
            """
            1:   +11,5
            10:  +12,19
            20:  -12,19 +12,20
            30:  -11,5 +13,1          # S1: (12,19) (12,20) (13,1): the group of 11 has lost its last row
            40:  -12,20 +12,3 +11,4   # S1: (13,1) (12,3) (11,4): the greatest of 12 has left, and the next with it
            45:  -13,1 +10,1          # S1: (12,3) (11,4) (10,1)
            122: -12,3 -11,4 +11,6    # S1: (11,4) (10,1) (11,6)
            140: -11,6 -10,1 +11,2 +14,9   # S1: (11,1) (11,2) (14,9)
            """,
        ),
    },
)

# ---------------------------------------------------------------------------- Q5: a greatest value that leaves its window

GREATEST = Past(
    {"S1": "A INT, B INT"},
    """
    1 S1 1 9;  2 S1 2 5;  3 S1 1 7;  4 S1 1 8;  5 S1 2 3;  6 S1 1 8;  7 S1 3 null;  8 S1 3 1;  9 S1 3 2;  10 S1 3 0;  10 S1 3 0
    """,
    {
        "Q5 of four rows": Asked(
            "SELECT A, MAX(B) AS top FROM S1 [ROWS 4] GROUP BY A",
            """
            1:  +1,9
            2:  +2,5
                                # 3, 4: 7 and 8 are less than 9
            5:  -1,9 +1,8       # (2,5) (1,7) (1,8) (2,3): the greatest of 1 has left, the second is that of 4
            6:  -2,5 +2,3       # (1,7) (1,8) (2,3) (1,8): the same for 2, and 8 is there twice
            7:  +3,null         # (1,8) (2,3) (1,8) (3,-): a group whose only value is NULL
            8:  -3,null +3,1    # (2,3) (1,8) (3,-) (3,1): one 8 has left, the other is the greatest
            9:  -2,3 -3,1 +3,2  # (1,8) (3,-) (3,1) (3,2): no row of 2
            10: -1,8            # two at once: (3,1) (3,2) (3,0) (3,0)
            """,
        )
    },
)

# ----------------------------------------------------------------------------------------------- Q6: functions of users

TABLES = {"T": {"10.0.0.1", "10.0.0.2"}}


def lookup(address: str, table: str) -> bool:
    """Is the address in the table?"""
    return address in TABLES[table]


def match(data: str, pattern: str) -> bool:
    """Does the pattern, `0x` and digits of which `.` may be any, occur in the data?"""
    return re.search(pattern.removeprefix("0x"), data) is not None


PACKETS = Past(
    {"Packets": "destAddr STRING, data STRING"},
    """
    1 Packets 10.0.0.1 ffa1238ff7abcb;  2 Packets 10.0.0.9 ffa1238ff7abcb;  3 Packets 10.0.0.2 a0008
    4 Packets 10.0.0.2 7000b;  5 Packets null a77778b;  5 Packets 10.0.0.2 null;  6 Packets 10.0.0.2 a7778b
    6 Packets 10.0.0.1 a12387ffb;  7 Packets 10.0.0.1 00
    """,
    {
        "Q6": Asked(
            """SELECT * FROM Packets P WHERE lookup(P.destAddr, 'T') = TRUE
               AND match(P.data, '0xa...8') = TRUE AND match(P.data, '0x7...b') = TRUE""",
            """
            1: 10.0.0.1,ffa1238ff7abcb,1      # a1238 and 7abcb. At 2 the address is in no table
                                              # 3: no 7…b; 4: no a…8; 5: of NULL nothing is true
            6: 10.0.0.2,a7778b,6              # a7778 and 7778b, one over the other; of the other row 7ffb is too short
            """,
        )
    },
    functions={"lookup": lookup, "match": match},
)

# ----------------------------------------------------------------------------- Q7: IN over windows of rows, as a semijoin

SEEN = "t0 TIMESTAMP, t1 TIMESTAMP, t2 TIMESTAMP"
MONITORS = Past(  # a packet is reported by each monitor as it passes, with the times of all three
    {f"S{place}": f"id INT, {SEEN}" for place in range(3)},
    """
     1 S0 1 2 3;  2 S1 1 1 3;  2 S0 2 3 10;  3 S0 3 4 5;  3 S1 2 2 10;  3 S2 1 1 2;  4 S0 4 6 7;  4 S1 3 3 5;  5 S2 3 3 4
     6 S1 4 4 7;  7 S2 4 4 6;  8 S1 5 12 9;  9 S2 5 12 8;  10 S2 2 2 3;  12 S0 5 8 9;  13 S0 6 14 15;  13 S0 6 14 15
    14 S1 6 13 15;  14 S1 6 13 15;  15 S2 6 13 14
    """,
    {
        "Q7": Asked(
            "SELECT * FROM S0 WHERE S0 IN (SELECT * FROM S1 [ROWS 2]) AND S0 IN (SELECT * FROM S2 [ROWS 2])",
            """
            3:  1,1,2,3       # packet 1 came at 1, is in S1 from 2 on and in S2 from 3 on: emitted when it first qualifies
            5:  3,3,4,5       # S1: 2 3. S2: 1 3
            7:  4,4,6,7       # S1: 3 4. S2: 3 4
                              # 10: packet 2 is in S2, but S1 has held 4 and 5 since 8: never
            12: 5,12,8,9      # comes last itself: S1: 4 5. S2: 5 2
            15: 6,13,14,15 6,13,14,15   # two rows of S0 are two; that S1 holds the packet twice does not double them
            """,
        )
    },
    times={f"S{place}": f"t{place}" for place in range(3)},
)

IN_TWO = "(A, B) IN (SELECT A, B FROM S1 [ROWS 2]) AND (A, B) IN (SELECT A, B FROM S2 [ROWS 2])"
SEMIJOINED = Past(
    dict.fromkeys(("S0", "S1", "S2"), "A INT, B INT"),
    """
    1 S0 1 1;  2 S1 1 1;  3 S2 1 1;  4 S1 2 2;  5 S1 3 3;  6 S1 1 1;  7 S0 1 1;  8 S1 null 1;  8 S0 null 1;  9 S2 null 1
    10 S1 5 5;  11 S1 1 1;  12 S0 1 2
    """,
    {
        "Q7 of columns": Asked(
            f"SELECT A, B FROM S0 WHERE {IN_TWO}",
            """
            3:  1,1
            6:  1,1           # it went at 5, S1: (2,2) (3,3), and comes again, S1: (3,3) (1,1): new in R(6)
            7:  1,1           # another row of S0
            11: 1,1 1,1       # at 10 both went, S1: (-,1) (5,5); NULL is equal to nothing, (-,1) is never emitted
            """,
        ),
        "Q7 as a relation": Asked(
            f"SELECT A, B FROM S0 [ROWS UNBOUNDED] WHERE {IN_TWO}",
            """
            3:  +1,1
            5:  -1,1
            6:  +1,1
            7:  +1,1
            10: -1,1 -1,1
            11: +1,1 +1,1
            """,
        ),
    },
)

Q1_TO_Q7 = {
    "links": LINKS,
    "filtered": FILTERED,
    "pairs": PAIRS,
    "greatest": GREATEST,
    "packets": PACKETS,
    "monitors": MONITORS,
    "semijoined": SEMIJOINED,
}
