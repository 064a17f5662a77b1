// Package mirror is a copy of some kinds of a Kubernetes API server, kept by watches, that
// can say whether all of it is up to a moment.
//
// A moment is a resource version. The mirror has reached one when, for each kind, a list,
// an event or a bookmark has shown that or a later one. A watch without events shows
// nothing, so a waiting caller has the kinds that lag listed: where the list equals the
// mirror, the mirror is as late as the list. One such question runs at a time, and all
// callers that waited when it began share its answer.
//
// It does not interpret objects, and writes nothing. Sources and ServiceSources say where
// the kinds for policy and services come from; a test's Source may be anything.
package mirror
