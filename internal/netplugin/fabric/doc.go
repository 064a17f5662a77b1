// Package fabric is the host's part of the physical network's routing: it runs the BGP
// speaker by the host's settings, announces what the host has, and gives the host's stack
// the learned routes. It guarantees that it announces only what the stack already reaches,
// that routes and announcements survive a restart of the process, and that all are removed
// with the settings. It must not know how containers are attached, ask a netmaster, or
// decide what data planes do. It is called by netplugin's agent. Start with Router.
package fabric
