// Package relay forwards a store's mirrors: a Hub in netmaster serves the Readers of
// agents, which follow it instead of the store. It guarantees to a Reader's callers what
// Store.Mirror promises, whatever happens to hubs and connections. A Reader leaves a Hub
// that is silent for Patience. A Hub merges what a slow client has not read, so that its
// queues stay bounded. It must not know what rows mean, which Access decides on, or what
// carries a stream. It is called by control, which has the Hub, and by netplugin's agent,
// which has the Reader. Start with Hub and Reader.
package relay
