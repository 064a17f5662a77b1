// Package analysis answers what the objects of the cluster mean: who may open connections to
// whom, and which rules decide. It guarantees that an answer is of one revision of the store,
// that it holds for each endpoint, port and address that it names, and that it costs nothing
// while there are no questions. It must not change anything, nor know who may ask what. It is
// called by the API's handlers. Start with Engine; docs/design/reachability.md explains it.
package analysis
