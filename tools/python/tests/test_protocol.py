"""What is read from the other side: hello, welcome and messages of any bytes."""

import random
import socket
import unittest

from support import PACKAGE

from lanewise import _protocol as p

assert PACKAGE  # is on the path now
FORM = p.Form(p.Field("float32", (2, 3)), p.Field("int64", (1,)))


def mutated(data, draw):
    """The same bytes with a few changed, gone or doubled."""
    data = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(data) + 1)
        action = draw.randrange(4)
        if action == 0:
            data[at:at] = draw.choice(
                [b"9" * 40, b"-", b"{", b"[" * 9, b"1e999", b"\\ud800", b"\xff", b"null", b"\x00"]
            )
        elif action == 1 and at < len(data):
            data[at] = draw.randrange(256)
        elif action == 2:
            del data[at : at + draw.randrange(20)]
        else:
            data[at:at] = data[at : at + draw.randrange(30)]
    return bytes(data)


class Reading(unittest.TestCase):
    def test_hello_and_welcome_say_what_was_put_in(self):
        hello = p.Hello('n\u00e4me "1"', FORM, True, False, "h")
        self.assertEqual(p.Hello.decode(hello.encode(), 32), hello)
        welcome = p.Welcome(2**64 - 1, 3, 'g\u00e9n\n"', "evaluate", 4, 128, 1 << 20)
        self.assertEqual(p.Welcome.decode(welcome.encode(), FORM), welcome)
        self.assertLessEqual(
            len(p.Welcome(2**64 - 1, 2**64 - 1, "\x01" * 512, "evaluate", 4096, 2**40, 2**40).encode()), 4080
        )

    def test_a_hello_or_welcome_of_any_bytes_is_right_or_named_wrong(self):
        seed = random.randrange(2**32)
        draw, good = random.Random(seed), 0
        hello = p.Hello("name", FORM, True, False, "helper").encode()
        welcome = p.Welcome(1, 2, "gen3", "train", 4, 128, 1024).encode()
        with self.subTest(seed=seed):
            for _ in range(3000):
                try:
                    self.assertLessEqual(p.Hello.decode(mutated(hello, draw), 1 << 20).form.payload, 1 << 20)
                    good += 1
                except p.ProtocolError:
                    pass
                try:
                    p.Welcome.decode(mutated(welcome, draw), FORM)
                except p.ProtocolError:
                    pass
        self.assertGreater(good, 0)

    def test_a_message_of_any_bytes_is_right_or_named_wrong(self):
        seed = random.randrange(2**32)
        draw = random.Random(seed)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            control = p.Control(ours, "parent")
            body = p.BODIES[p.STATE].pack(1, 2, 3)
            message = p.MESSAGE_HEADER.pack(p.MESSAGE_MAGIC, p.VERSION, p.STATE, 16 + len(body), 0) + body
            for _ in range(3000):
                sent = mutated(message, draw)
                if not sent:
                    continue
                theirs.send(sent)
                try:
                    kind, found = control.receive(wait=True)
                    p.values_of(kind, found) if kind in p.BODIES else None
                except p.ProtocolError as e:
                    self.assertIn(e.kind, ("magic", "version", "type", "size"), f"seed {seed}")

    def test_a_sample_above_the_limit_is_refused_before_any_memory_is_made(self):
        hello = p.Hello("n", p.Form(p.Field("float64", (2**60, 2**60)), p.Field("float32", (1,))), False, False)
        with self.assertRaisesRegex(p.ProtocolError, "^shape: a sample .* at most 1024 are allowed$"):
            p.Hello.decode(hello.encode(), 1024)

    def test_the_form_s_digest_and_layout_are_those_of_the_document(self):
        self.assertEqual((str(FORM), FORM.y_at, FORM.payload, FORM.slot_size), ("float32[2,3] int64[1]", 24, 32, 128))
        self.assertEqual(p.Form(p.Field("float32", (9,)), p.Field("float32", (1,))).y_at, 40)


if __name__ == "__main__":
    unittest.main()
