"""Documents of the Open Inference Protocol, in JSON and in binary."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localma.serving.protocol import (
    NUMBERS,
    RequestError,
    Tensor,
    encode_response,
    parse_request,
)


def tensor(**changes):
    return {"name": "X", "shape": [2], "datatype": "FP64", "data": [1, 2.5]} | changes


def body(*inputs, **fields):
    return json.dumps({"inputs": list(inputs), **fields}).encode()


def parsed(*inputs, **fields):
    return parse_request(body(*inputs, **fields))


class TestJson:
    def test_a_request(self):
        request = parsed(tensor(), id="7", parameters={"deadline": 0.5}, outputs=[{"name": "w"}])
        assert request.inputs[0].values.tolist() == [1.0, 2.5]
        assert (request.id, request.parameters) == ("7", {"deadline": 0.5})
        assert [(o.name, o.is_binary) for o in request.outputs] == [("w", False)]

    @pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]]])
    def test_values_may_be_flat_or_nested(self, data):
        values = parsed(tensor(shape=[2, 2], data=data)).inputs[0].values
        assert values.tolist() == [[1, 2], [3, 4]]

    def test_null_is_a_missing_number_or_text(self):
        number, text = parsed(
            tensor(data=[None, 1]), tensor(name="t", datatype="BYTES", data=[None, "a"])
        ).inputs
        assert np.isnan(number.values[0])
        assert text.values.tolist() == [None, "a"]

    @pytest.mark.parametrize("datatype", NUMBERS)
    def test_each_datatype_has_its_type(self, datatype):
        data = [True, False] if datatype == "BOOL" else [1, 0]
        values = parsed(tensor(datatype=datatype, data=data)).inputs[0].values
        assert values.dtype == np.dtype(NUMBERS[datatype])
        assert values.tolist() == data

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"datatype": "FP8"}, "datatype from BOOL"),
            ({"datatype": "INT64", "data": [1, 2.5]}, "INT64, but its data has 2.5"),
            ({"datatype": "INT64", "data": [1, None]}, "A missing number needs datatype FP64"),
            ({"datatype": "FP64", "data": [1, True]}, "but its data has True"),
            ({"datatype": "FP64", "data": [1, "2"]}, "but its data has '2'"),
            ({"datatype": "UINT8", "data": [1, 300]}, "UINT8 cannot hold"),
            ({"datatype": "UINT8", "data": [1, -1]}, "UINT8 cannot hold"),
            ({"data": [1, 10**400]}, "FP64 cannot hold"),
            ({"shape": [3]}, "needs 3 values; received 2"),
            ({"shape": [-1]}, "shape of one or two whole numbers"),
            ({"shape": [True, 2]}, "shape of one or two whole numbers"),
            ({"shape": [1, 1, 2]}, "shape of one or two whole numbers"),
            ({"shape": [2, 2], "data": [[1, 2], [3]]}, "2 lists of 2 values"),
            ({"data": {"a": 1}}, "needs data, a list"),
            ({"colour": "red"}, "unknown field 'colour'"),
            ({"parameters": {"shared_memory_region": "r"}}, "does not have"),
            ({"parameters": {"binary_data_size": 8}}, "at most the 0"),
            ({"name": ""}, "needs a name"),
        ],
    )
    def test_a_wrong_tensor_is_named(self, changes, words):
        with pytest.raises(RequestError) as caught:
            parsed(tensor(**changes))
        assert words in str(caught.value)
        assert caught.value.status == 400

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (b"", "cannot be read"),
            (b"\xff\xfe", "cannot be read"),
            (b"[1]", "must be a JSON object"),
            (b"{}", "list of one tensor or more"),
            (b'{"inputs": []}', "list of one tensor or more"),
            (b'{"inputs": [3]}', "An input must be a JSON object"),
            (body(tensor(), tensor()), "occurs twice"),
            (body(tensor(), id=3), "id must be a text"),
            (body(tensor(), parameters=[1]), "parameters must be an object"),
            (body(tensor(), parameters={"a": [1]}), "the parameter 'a'"),
            (body(tensor(), outputs=[]), "list of one output"),
            (body(tensor(), outputs=[{"name": "w"}] * 2), "listed twice"),
            (b"[" * 100_000, "lists and objects"),
            (b'{"inputs": ' + b'{"a":' * 1_000, "cannot be read"),
        ],
    )
    def test_a_wrong_document_is_refused(self, text, words):
        with pytest.raises(RequestError, match=words):
            parse_request(text)

    def test_a_message_is_short_and_on_one_line(self):
        with pytest.raises(RequestError) as caught:
            parsed(tensor(datatype="\n" + "x" * 10_000))
        assert len(str(caught.value)) < 400
        assert "\n" not in str(caught.value)


def binary(datatype, shape, raw, *more, **fields):
    entry = {"name": "X", "datatype": datatype, "shape": shape}
    entry["parameters"] = {"binary_data_size": len(raw)}
    header = body(entry, *more, **fields)
    return parse_request(header + raw, len(header))


class TestBinary:
    @given(
        st.sampled_from([name for name in NUMBERS if name != "BOOL"]),
        st.lists(st.integers(0, 100), min_size=1, max_size=20),
    )
    def test_numbers_come_back(self, datatype, values):
        array = np.array(values, dtype=NUMBERS[datatype])
        sent, length = encode_response({}, [(Tensor("X", datatype, array), True)])
        document = json.loads(sent[:length])
        header = body(*document["outputs"])
        back = parse_request(header + sent[length:], len(header)).inputs[0]
        assert back.values.tolist() == array.tolist()

    @given(st.lists(st.text(), min_size=1, max_size=10))
    def test_texts_come_back(self, texts):
        array = np.array(texts, dtype=object)
        sent, length = encode_response({}, [(Tensor("X", "BYTES", array), True)])
        header = body(*json.loads(sent[:length])["outputs"])
        assert parse_request(header + sent[length:], len(header)).inputs[0].values.tolist() == texts

    def test_json_and_binary_tensors_may_be_mixed(self):
        raw = np.array([1.0, 2.0]).tobytes()
        request = binary("FP64", [2], raw, tensor(name="b"))
        assert [t.values.tolist() for t in request.inputs] == [[1.0, 2.0], [1.0, 2.5]]

    @pytest.mark.parametrize(
        ("datatype", "shape", "raw", "words"),
        [
            ("FP64", [2], b"\0" * 15, "needs 16 bytes; received 15"),
            ("BYTES", [1], b"\x05\0\0\0ab", "ends within a text"),
            ("BYTES", [2], b"\x01\0\0\0a", "needs 2 texts"),
            ("BYTES", [1], b"\x01\0\0\0\xff", "not in UTF-8"),
        ],
    )
    def test_wrong_bytes_are_refused(self, datatype, shape, raw, words):
        with pytest.raises(RequestError, match=words):
            binary(datatype, shape, raw)

    def test_bytes_that_belong_to_no_tensor_are_refused(self):
        header = body(tensor())
        with pytest.raises(RequestError, match="0 bytes together, but 3 follow"):
            parse_request(header + b"abc", len(header))

    @pytest.mark.parametrize("length", [0, 10_000])
    def test_a_wrong_length_of_the_header_is_refused(self, length):
        with pytest.raises(RequestError, match="must be from 1 to"):
            parse_request(body(tensor()), length)

    def test_a_client_may_ask_for_binary_outputs(self):
        request = parsed(
            tensor(),
            parameters={"binary_data_output": True},
            outputs=[{"name": "a"}, {"name": "b", "parameters": {"binary_data": False}}],
        )
        assert [output.is_binary for output in request.outputs] == [True, False]
        assert request.parameters == {}


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(1, 200)))
def test_any_bytes_are_read_or_refused(raw, length):
    with suppress(RequestError):
        assert parse_request(raw, length).inputs


def test_a_missing_number_is_null_in_a_response():
    outputs = [(Tensor("p", "FP64", np.array([[1.0, np.nan]])), False)]
    sent, _ = encode_response({"id": "1"}, outputs)
    assert json.loads(sent)["outputs"][0] == {
        "name": "p",
        "datatype": "FP64",
        "shape": [1, 2],
        "data": [1.0, None],
    }
