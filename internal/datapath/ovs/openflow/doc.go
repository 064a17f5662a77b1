// Package openflow is a codec of OpenFlow 1.4 (ONF TS-024) with Open vSwitch's extensions
// (ovs-fields(7), ovs-actions(7)), and a connection to a bridge with atomic bundles and
// flow dumps. It guarantees that encoding and decoding are a round trip, that unknown
// bytes are an error and never a panic, and that Commit applies all changes or none. It
// must not know what the flows are for, or import anything of this module. It is called by
// the Open vSwitch driver and its package pipeline. Start with Flow and Conn.
package openflow
