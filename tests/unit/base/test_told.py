from dsforge.base.errors import DsforgeError, Place


def test_a_name_with_line_breaks_forges_no_line_of_ours():
    fault = DsforgeError(
        "DSF344", "a\nerror[DSF000]: forged \x1b[31m is missing", Place(file="b\r\nc"), "d\ne"
    )
    assert fault.told() == (
        "error[DSF344]: a\\nerror[DSF000]: forged \\x1b[31m is missing (b\\r\\nc)\n  hint: d\\ne\n"
    )


def test_without_place_and_hint_one_line_is_told():
    assert DsforgeError("DSF301", "no RANK").told() == "error[DSF301]: no RANK\n"
