package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Flow is one entry of a flow table. No actions means drop.
type Flow struct {
	Table    uint8
	Priority uint16
	Cookie   uint64
	Match    Match
	Actions  []Action
}

// Key identifies a flow within a bridge: two flows with equal keys cannot exist
// beside each other. It is opaque and comparable.
func (f Flow) Key() string {
	b := make([]byte, 0, 64)
	b = append(b, f.Table)
	b = binary.BigEndian.AppendUint16(b, f.Priority)
	return string(f.Match.appendWire(b))
}

// Body is all of a flow that its Key does not hold: two flows are equal when
// both Key and Body are. It is opaque and comparable.
func (f Flow) Body() string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 64), f.Cookie)
	return string(appendActions(b, f.Actions))
}

// FromParts rebuilds a flow from its Key and Body.
func FromParts(key, body string) (Flow, error) {
	k, b := []byte(key), []byte(body)
	if len(k) < 3 || len(b) < 8 {
		return Flow{}, fmt.Errorf("flow of %d and %d bytes is cut short", len(k), len(b))
	}
	f := Flow{Table: k[0], Priority: binary.BigEndian.Uint16(k[1:]), Cookie: binary.BigEndian.Uint64(b)}
	m, rest, err := readMatch(k[3:])
	if err != nil {
		return Flow{}, err
	}
	if len(rest) > 0 {
		return Flow{}, fmt.Errorf("%d bytes after a match", len(rest))
	}
	f.Match = m
	f.Actions, err = readActions(b[8:])
	return f, err
}

func appendActions(b []byte, as []Action) []byte {
	for _, a := range as {
		b = a.appendWire(b)
	}
	return b
}

// readActions reads what appendActions has written: a Meter, which is no action on
// the wire, is at most the first one.
func readActions(b []byte) ([]Action, error) {
	var out []Action
	if m, rest, ok := readMeter(b); ok {
		out, b = append(out, m), rest
	}
	for len(b) > 0 {
		a, rest, err := readAction(b)
		if err != nil {
			return nil, err
		}
		out, b = append(out, a), rest
	}
	return out, nil
}

// String prints the flow in the form of ovs-ofctl dump-flows without counters.
func (f Flow) String() string {
	var s strings.Builder
	if f.Cookie != 0 {
		fmt.Fprintf(&s, "cookie=%#x, ", f.Cookie)
	}
	fmt.Fprintf(&s, "table=%d, priority=%d", f.Table, f.Priority)
	if m := f.Match.String(); m != "" {
		s.WriteString("," + m)
	}
	s.WriteString(" actions=" + ActionsText(f.Actions))
	return s.String()
}

// ActionsText prints a list of actions as ovs-ofctl does.
func ActionsText(as []Action) string {
	if len(as) == 0 {
		return "drop"
	}
	parts := make([]string, len(as))
	for i, a := range as {
		parts[i] = a.String()
	}
	return strings.Join(parts, ",")
}

// The instructions (OpenFlow 1.4.1 section 7.2.4).
const (
	instrApply = 4
	instrMeter = 6
)

func readMeter(b []byte) (Meter, []byte, bool) {
	if len(b) < 8 || binary.BigEndian.Uint16(b) != instrMeter || binary.BigEndian.Uint16(b[2:]) != 8 {
		return Meter{}, b, false
	}
	return Meter{binary.BigEndian.Uint32(b[4:])}, b[8:], true
}

// appendInstructions writes one apply-actions instruction, after the meter if there
// is one, or none for a drop.
func appendInstructions(b []byte, as []Action) []byte {
	if len(as) > 0 {
		if m, ok := as[0].(Meter); ok {
			b, as = m.appendWire(b), as[1:]
		}
	}
	if len(as) == 0 {
		return b
	}
	start := len(b)
	b = append(b, 0, instrApply, 0, 0, 0, 0, 0, 0)
	b = appendActions(b, as)
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

func readInstructions(b []byte) ([]Action, error) {
	var before []Action
	if m, rest, ok := readMeter(b); ok {
		before, b = append(before, m), rest
	}
	if len(b) == 0 {
		return before, nil
	}
	if len(b) < 8 {
		return nil, fmt.Errorf("instruction cut short: %d bytes", len(b))
	}
	typ, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
	if typ != instrApply || n != len(b) {
		return nil, fmt.Errorf("unsupported instruction of type %d and length %d in %d bytes", typ, n, len(b))
	}
	as, err := readActions(b[8:])
	if err == nil && len(as) > 0 && len(before) > 0 {
		if _, twice := as[0].(Meter); twice {
			return nil, errors.New("a meter among actions")
		}
	}
	return append(before, as...), err
}
