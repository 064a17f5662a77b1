package checksum

import (
	"bytes"
	"testing"
)

func TestSumFollowsRFC1071(t *testing.T) {
	for _, c := range []struct {
		name  string
		start uint32
		b     []byte
		want  uint16
	}{
		{"RFC 1071's own example", 0, []byte{0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7}, 0xddf2},
		{"nothing", 0, nil, 0},
		{"an odd byte is the upper one", 0, []byte{1, 2, 3}, 0x0402},
		{"a carry that makes another", 0xffff, []byte{0xff, 0xff, 0, 1}, 1},
		{"a start above 16 bits", 0x1ffff, nil, 1},
		{"more than 32 bits' worth", 0xffffffff, bytes.Repeat([]byte{0xff}, 1<<18), 0xffff},
	} {
		if got := Sum(c.start, c.b); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

// TestTransportChecksumsMatchTheKernel: an echo request and a datagram as the kernel sends them.
func TestTransportChecksumsMatchTheKernel(t *testing.T) {
	four := []byte{10, 0, 0, 1, 10, 0, 0, 2}
	udp := []byte{0x30, 0x39, 0, 53, 0, 11, 0, 0, 'a', 'b', 'c'}
	if got := ^Upper(17, four, udp); got != 0xf704 {
		t.Errorf("a datagram's is %#x, want 0xf704", got)
	}
	six := make([]byte, 32)
	six[0], six[1], six[15], six[16], six[17], six[31] = 0xfd, 9, 1, 0xfd, 9, 2
	echo := []byte{128, 0, 0, 0, 0, 7, 0, 1}
	if got := ^Upper(58, six, echo); got != 0x859e {
		t.Errorf("an echo request's is %#x, want 0x859e", got)
	}
	echo[2], echo[3] = 0x85, 0x9e
	if got := Upper(58, six, echo); got != Right {
		t.Errorf("with its checksum it is %#x", got)
	}
	if got := Upper(6, four, make([]byte, 0x12345)); got != Sum(1+0x2345+6, four) {
		t.Errorf("of more than 65,535 bytes %#x", got)
	}
}
