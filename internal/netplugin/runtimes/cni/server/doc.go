// Package server is netplugin's end of the CNI plugin: it understands the
// configurations and CNI_ARGS that contivk8s hands on as they are, has an
// attach.Service do the verb, and makes the result, or the error, in the words
// of the specification's version asked for.
//
// It is in netplugin and not in the plugin because a long-running program builds the
// decoder's tables once; the plugin would build them for every verb.
//
// It must not touch namespaces, the store or netmaster.
package server
