// Package tracepacket sends one packet from a container's network namespace, and watches for
// it in another one. Receivers recognise it by its payload. It guarantees that nothing is
// left in a namespace when its functions have returned. It must not know policies or the
// store: what a packet is expected to meet is netmaster's to say. It is called by observe.
// Start with Packet.Send.
package tracepacket
