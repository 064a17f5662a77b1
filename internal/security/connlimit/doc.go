// Package connlimit keeps one client of a listener from using up what all need: it limits
// the size of bodies, the rate of requests, and the number of requests in progress.
//
// It guarantees that a refusal is a sentence with its status (413, 429, 503) and the time
// to retry after, that memory is bounded whatever addresses connect, and that being
// forgotten gains no client anything: a client is forgotten only when it could not be
// distinguished from a new one. Clients without an entry of their own share one.
//
// It must not know more about a client than its address, nor what it requests.
package connlimit
