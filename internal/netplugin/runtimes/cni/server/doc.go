// Package server is netplugin's end of the CNI plugin: it understands the
// configurations and CNI_ARGS that contivk8s hands on as they are, has an
// attach.Service do the verb, and makes the result, or the error, in the words
// of the specification's version asked for.
//
// It is in netplugin and not in the plugin because a long-running program builds the
// decoder's tables once; the plugin would build them for every verb.
//
// Install places the plugin and its configuration where container runtimes look for them,
// and RemoveConf and RemovePlugin take them away: the runtime sees each file old or new,
// never half, and nothing is placed where another network's configuration comes first.
//
// It must not touch namespaces, the store or netmaster, nor files that are not named
// contivk8s or ConfFile.
package server
