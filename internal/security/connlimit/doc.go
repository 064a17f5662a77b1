// Package connlimit keeps one client of a listener from using up what all need: it limits
// the size of bodies, the rate of requests, and requests in progress. It guarantees
// refusals with a status (413, 429, 503) and a time to retry, and bounded memory whatever
// addresses connect. A client is forgotten only when it looks like a new one, so that being
// forgotten gains nothing. It must not know more about a client than its address, or what
// it requests. It is called by netmaster, netplugin's agent and package daemon, around
// their listeners. Start with Limiter.
package connlimit
