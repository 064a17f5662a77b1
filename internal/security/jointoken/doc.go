// Package jointoken is what those who are let in to a cluster show at the door of its
// members: one-time tokens that carry the fingerprint of the members' authority, the
// client that speaks to that authority only, and the shapes of questions and answers.
//
// It guarantees that a token's text is taken whole or not at all, that no error or
// String shows its secret, and that nothing is sent to who does not show the authority
// of the fingerprint.
//
// It must not know etcd: netplugin has it, too.
package jointoken
