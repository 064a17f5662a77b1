package openflow

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Error is a switch's refusal (OpenFlow 1.4.1 section 7.5.4).
type Error struct {
	Type, Code uint16
	Data       []byte // the first bytes of the refused message
}

var errorTypes = map[uint16]string{
	0: "hello failed", 1: "bad request", 2: "bad action", 3: "bad instruction", 4: "bad match",
	5: "flow change failed", 6: "group change failed", 7: "port change failed", 12: "meter change failed", 13: "multipart request failed",
	17: "bundle failed", 0xffff: "experimenter error",
}

var errorCodes = map[[2]uint16]string{
	{0, 0}: "no common version", {0, 1}: "no permission",
	{1, 0}: "version not supported", {1, 1}: "type not supported", {1, 2}: "multipart type not supported",
	{1, 3}: "experimenter not supported", {1, 5}: "no permission", {1, 6}: "wrong length", {1, 9}: "invalid table",
	{2, 0}: "unknown action type", {2, 1}: "wrong length", {2, 4}: "invalid output port", {2, 5}: "bad argument",
	{2, 7}: "too many actions", {2, 10}: "action does not fit the match", {2, 11}: "unsupported order",
	{2, 13}: "unsupported field in set_field", {2, 14}: "wrong length of set_field", {2, 15}: "bad argument of set_field",
	{3, 0}: "unknown instruction", {3, 2}: "invalid table", {3, 6}: "wrong length",
	{4, 1}: "wrong length", {4, 4}: "unsupported address mask", {4, 6}: "unknown field", {4, 7}: "unsupported value",
	{4, 8}: "unsupported mask", {4, 9}: "a field's prerequisite is missing", {4, 10}: "a field occurs twice",
	{5, 0}: "unknown reason", {5, 1}: "table is full", {5, 2}: "invalid table", {5, 3}: "overlaps another flow",
	{17, 0}: "unknown reason", {17, 2}: "bad bundle id", {17, 3}: "bundle exists", {17, 4}: "bundle is closed",
	{17, 5}: "out of bundles", {17, 6}: "bad type", {17, 7}: "bad flags", {17, 8}: "wrong length of a message",
	{17, 9}: "message with another number", {17, 10}: "unsupported message", {17, 11}: "conflicting messages",
	{17, 12}: "too many messages", {17, 13}: "a message failed", {17, 14}: "timeout",
}

func (e *Error) Error() string {
	t, ok := errorTypes[e.Type]
	if !ok {
		t = fmt.Sprintf("error of type %d", e.Type)
	}
	c, ok := errorCodes[[2]uint16{e.Type, e.Code}]
	if !ok {
		c = fmt.Sprintf("code %d", e.Code)
	}
	s := "switch refused: " + t + ": " + c
	if e.Type == 0 && len(e.Data) > 0 {
		s += " (" + strings.TrimRight(string(e.Data), "\x00") + ")"
	}
	return s
}

func readError(b []byte) (*Error, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("error message truncated: %d bytes", len(b))
	}
	return &Error{Type: binary.BigEndian.Uint16(b), Code: binary.BigEndian.Uint16(b[2:]), Data: b[4:]}, nil
}
