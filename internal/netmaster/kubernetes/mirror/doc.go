// Package mirror is a copy of what an API server of Kubernetes holds of some kinds,
// kept by watches, that can say whether it is all up to a moment.
//
// A moment is a resource version. The mirror has reached one when, for each kind, a
// list, an event or a bookmark has shown that or a later one. A watch without events
// shows nothing, so whoever waits has the kinds that lag listed: where the list has
// exactly what the mirror has, the mirror is as late as the list. One such question
// runs at a time, and all who waited when it began share its answer.
//
// It gives the objects no meaning, and writes nothing. Sources and ServiceSources have
// where the kinds come from that policy and services are made of; a test's Source may be
// anything.
package mirror
