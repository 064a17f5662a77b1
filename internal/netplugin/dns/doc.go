// Package dns is the name server of one host: it answers names of containers, groups and
// services to containers of the same tenant, and forwards other questions to the host's
// resolvers. It guarantees that no answer has another tenant's name or address, that
// questions from unknown addresses are refused, and that memory, time and open questions
// are bounded. It must not know the store, or decode DNS messages by itself
// (github.com/miekg/dns does). It is called by netplugin's agent, which gives it
// desired.DNS. Start with Server.
package dns
