"""Queries Q8 to Q12 of Babu's thesis: see `query_catalogue_q1_to_q7.py`, which has how the answers are worked out."""

from __future__ import annotations

from tests.papers.query_catalogue import Asked, Past

# ------------------------------------------------------------------------- Q8, Q9: windows of rows, three ways and four

THREE_WAY = Past(
    {"R": "A INT", "S": "A INT, B INT", "T": "B INT"},
    """
    1 R 1;  2 S 1 5;  3 T 5;  4 S 1 6;  5 T 6;  6 R 1;  7 R 2;  8 S 2 6;  9 S 3 6;  10 T 6;  11 R 3;  11 S 2 6
    """,
    {
        "Q8": Asked(
            "SELECT R.A, S.B FROM R [ROWS 2], S [ROWS 2], T [ROWS 1] WHERE R.A = S.A AND S.B = T.B",
            """
            3:  +1,5
                             # 4: S: (1,5) (1,6)
            5:  -1,5 +1,6    # T: 6
            6:  +1,6         # R: 1 1, two equal rows
            7:  -1,6         # R: 1 2, of which one has gone
            8:  +2,6         # S: (1,6) (2,6)
            9:  -1,6         # S: (2,6) (3,6)
                             # 10: another 6 in place of T's: what goes equals what comes
            11: +3,6         # R: 2 3. S: (3,6) (2,6): (2,6) by another row, as before
            """,
        )
    },
)

FOUR_WAY = Past(
    {f"S{place}": "A INT, B INT" for place in range(1, 5)},
    """
    1 S1 1 10;  2 S2 1 20;  3 S3 1 30;  4 S4 1 40;  5 S1 1 11;  6 S3 1 31;  7 S2 1 21;  8 S1 2 12;  9 S4 2 41;  10 S2 2 22
    11 S3 2 32;  12 S1 null 13;  13 S2 null 23;  14 S3 null 33;  15 S4 null 42
    """,
    {
        "Q9": Asked(
            """SELECT S1.A, S1.B AS b1, S2.B AS b2, S3.B AS b3, S4.B AS b4
               FROM S1 [ROWS 2], S2 [ROWS 1], S3 [ROWS 2], S4 [ROWS 1] WHERE S1.A = S2.A AND S2.A = S3.A AND S3.A = S4.A""",
            """
            4:  +1,10,20,30,40
            5:  +1,11,20,30,40                    # S1: 10 11
            6:  +1,10,20,31,40 +1,11,20,31,40     # S3: 30 31, with both of S1
            7:  -1,10,20,30,40 -1,11,20,30,40 -1,10,20,31,40 -1,11,20,31,40   # S2: 21 in place of 20
                +1,10,21,30,40 +1,11,21,30,40 +1,10,21,31,40 +1,11,21,31,40
            8:  -1,10,21,30,40 -1,10,21,31,40     # S1: 11, and 12 of A = 2
            9:  -1,11,21,30,40 -1,11,21,31,40     # S4: 41 of A = 2
            11: +2,12,22,32,41                    # the last of the four of A = 2
            13: -2,12,22,32,41                    # S2: NULL, which is equal to no NULL, at 15 either
            """,
        )
    },
)

# ----------------------------------------------------------------------- Q10: segments with an accident, of Linear Road

LAST_SEGMENTS = """SELECT LastRep.cid, sid FROM (CarStr [PARTITION BY cid ROWS 1]) AS LastRep,
    (SELECT DISTINCT cid FROM CarStr [RANGE 30 SECONDS]) AS CurActiveCars WHERE LastRep.cid = CurActiveCars.cid"""
STOPPED = """SELECT cid FROM CarStr [PARTITION BY cid ROWS 4] GROUP BY cid
    HAVING COUNT(DISTINCT xpos) = 1 AND COUNT(*) = 4"""
SEGMENTS = """
    40:         +7        # car 1 has stopped, in segment 7
                          # 45, 50: so has car 2, and car 1 starts again: the segment stays, emitted once
    75.000001:  -7        # car 2 has not reported for 30 seconds: it is no active car
    90:         +7 +8     # it reports again, where it stood; and car 4 has stopped
    95:         -7        # car 2 is in segment 8 now, at another place
    110:        +3        # car 5: four reports at one instant
    130.000001: -8        # car 4 reported last at 100
    140.000001: -3
"""
LINEAR_ROAD = Past(
    {"CarStr": "cid INT, sid INT, xpos INT"},
    """
     0 CarStr 1 7 690;  10 CarStr 1 7 700;  15 CarStr 2 7 705;  20 CarStr 1 7 700;  25 CarStr 2 7 705;  30 CarStr 1 7 700
    35 CarStr 2 7 705;  40 CarStr 1 7 700;  45 CarStr 2 7 705;  50 CarStr 1 7 710;  50 CarStr 3 9 900;  60 CarStr 3 9 900
    60 CarStr 4 8 800;  70 CarStr 3 9 900;  70 CarStr 4 8 800;  80 CarStr 4 8 800;  90 CarStr 2 7 705;  90 CarStr 4 8 800
    95 CarStr 2 8 800;  100 CarStr 4 8 800;  110 CarStr 5 3 300;  110 CarStr 5 3 300;  110 CarStr 5 3 300
    110 CarStr 5 3 300;  150 CarStr 1 6 600
    """,
    {
        "CurCarSeg": Asked(
            LAST_SEGMENTS,
            """
            0:          +1,7
            15:         +2,7
            50:         +3,9
            60:         +4,8
            75.000001:  -2,7          # 2 reported last at 45
            80.000001:  -1,7          # 1 at 50
            90:         +2,7
            95:         -2,7 +2,8     # its last report is of another segment
            100.000001: -3,9
            110:        +5,3          # one car, however many reports
            125.000001: -2,8
            130.000001: -4,8
            140.000001: -5,3
            150:        +1,6
            """,
        ),
        "AccCars": Asked(
            STOPPED,
            """
            40:  +1     # at 30 the four are 690 700 700 700
            45:  +2     # its fourth report
            50:  -1     # 700 700 700 710
            90:  +4     # its fourth; car 3 has sent three, all of one place
            95:  -2     # 705 705 705 800; until then it counts as stopped, silent or not
            110: +5
            """,
        ),
        "Q10": Asked(
            f"""SELECT DISTINCT sid FROM ({LAST_SEGMENTS}) AS CurCarSeg, ({STOPPED}) AS AccCars
                WHERE CurCarSeg.cid = AccCars.cid""",
            SEGMENTS,
        ),
        "Q10 by name": Asked(  # of its two parts as registered queries
            "SELECT DISTINCT sid FROM CurCarSeg, AccCars WHERE CurCarSeg.cid = AccCars.cid", SEGMENTS
        ),
    },
)

# ------------------------------------------------------------------- Q11, Q11b, Q11c: filters under windows and over them

FIRST_FILTERED = "(SELECT A, B FROM S1 WHERE B > 10) AS S1"
DEAR_PAIRS = """
    100:        +1,11,7
    300:        +1,11,8             # S1@0, for the last time
    300.000001: -1,11,7 -1,11,8
    700:        +1,12,7 +1,12,8     # 10 is not above 10
    700.000001: -1,12,7
    900.000001: -1,12,8
"""
RANGES = Past(
    {"S1": "A INT, B INT", "S2": "A INT, C INT"},
    """
    0 S1 1 11;  100 S2 1 7;  200 S1 1 5;  300 S2 1 8;  700 S1 1 12;  700 S1 1 10;  1100 S1 9 99
    """,
    {
        "Q11": Asked(
            "SELECT S1.A, S1.B, S2.C FROM S1 [RANGE 5 MINUTES], S2 [RANGE 10 MINUTES] WHERE S1.A = S2.A",
            """
            100:        +1,11,7
            200:        +1,5,7
            300:        +1,11,8 +1,5,8               # S1@0 is there for the last time
            300.000001: -1,11,7 -1,11,8
            500.000001: -1,5,7 -1,5,8                # S1@200 has left
            700:        +1,12,7 +1,12,8 +1,10,7 +1,10,8   # S2@100 is there for the last time
            700.000001: -1,12,7 -1,10,7
            900.000001: -1,12,8 -1,10,8              # S2@300 has left
            """,
        ),
        "Q11b": Asked(
            """SELECT S1.A, S1.B, S2.C FROM S1 [RANGE 5 MINUTES], S2 [RANGE 10 MINUTES]
               WHERE S1.A = S2.A AND S1.B > 10""",
            DEAR_PAIRS,
        ),
        "Q11b, the filter under the window": Asked(
            f"SELECT S1.A, S1.B, S2.C FROM {FIRST_FILTERED} [RANGE 5 MINUTES], S2 [RANGE 10 MINUTES] WHERE S1.A = S2.A",
            DEAR_PAIRS,
        ),
        "Q11b, the filter over the window alone": Asked(
            """SELECT S1.A, S1.B, S2.C FROM (SELECT A, B FROM S1 [RANGE 5 MINUTES] WHERE B > 10) AS S1,
               S2 [RANGE 10 MINUTES] WHERE S1.A = S2.A""",
            DEAR_PAIRS,
        ),
        "Q11c": Asked(
            """SELECT S1.A, S1.B, S2.C FROM S1 [ROWS 2], S2 [RANGE 10 MINUTES]
               WHERE S1.A = S2.A AND S1.B > 10""",
            """
            100:        +1,11,7
            300:        +1,11,8                            # S1: 11 5
            700:        -1,11,7 -1,11,8 +1,12,7 +1,12,8    # S1: 12 10: 11 has left, though 5 and 10 are in no answer
            700.000001: -1,12,7
            900.000001: -1,12,8
            """,
        ),
        "Q11c, the filter under the window": Asked(
            f"SELECT S1.A, S1.B, S2.C FROM {FIRST_FILTERED} [ROWS 2], S2 [RANGE 10 MINUTES] WHERE S1.A = S2.A",
            """
            100:        +1,11,7
            300:        +1,11,8
            700:        +1,12,7 +1,12,8                    # S1: 11 12, the last two that pass
            700.000001: -1,11,7 -1,12,7
            900.000001: -1,11,8 -1,12,8
            """,
            tied=False,
        ),
    },
)

# -------------------------------------------------------------------------------- Q12: a result that is deleted again

CHAIN = Past(
    {"S1": "A INT, B INT", "S2": "B INT, C INT", "S3": "C INT, D INT"},
    """
    1 S2 2 4;  2 S1 1 2;  3 S3 4 12;  4 S1 5 2;  5 S3 6 8;  6 S2 3 6;  7 S1 7 3;  8 S3 6 11;  9 S3 4 12;  10 S3 4 12
    11 S3 6 20;  11 S3 4 13
    """,
    {
        "Q12": Asked(
            """SELECT S1.A, S1.B, S2.C, S3.D FROM S1 [ROWS UNBOUNDED], S2 [ROWS UNBOUNDED], S3 [ROWS 1]
               WHERE S1.B = S2.B AND S2.C = S3.C AND S3.D > 10""",
            """
            3:  +1,2,4,12
            4:  +5,2,4,12
            5:  -1,2,4,12 -5,2,4,12              # S3: (6,8) in place of (4,12)
                                                 # 7: (7,3) (3,6) (6,8): 8 is not above 10
            8:  +7,3,6,11
            9:  -7,3,6,11 +1,2,4,12 +5,2,4,12    # what was deleted is there again
                                                 # 10: an equal row takes the place
            11: -1,2,4,12 -5,2,4,12 +1,2,4,13 +5,2,4,13   # (6,20) was the last row at no instant
            """,
        )
    },
)

Q8_TO_Q12 = {
    "three-way": THREE_WAY,
    "four-way": FOUR_WAY,
    "Linear Road": LINEAR_ROAD,
    "ranges": RANGES,
    "chain": CHAIN,
}
