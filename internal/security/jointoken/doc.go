// Package jointoken is how new members and hosts join a cluster: one-time tokens with the
// fingerprint of the members' authority, a client that trusts that authority only, and the
// messages. It guarantees that no error or String shows a token's secret, and that nothing
// is sent to a server that does not have the authority. It must not know etcd, because
// netplugin links it. It is called by membership in netmaster and by enrollment in
// netplugin. Start with Token.
package jointoken
