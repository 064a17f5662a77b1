// Package controller keeps the store in step with a Kubernetes API server: policies and
// namespaces (Keeper), services and nodes (Services), and Contiv's own objects (Objects).
// It guarantees that only the leading netmaster writes, by use cases of control under its
// fence, and only differences. Each object that cannot be realized as written is reported.
// It must not decide what an object means, which package translate does. It is called by
// cmd/netmaster, which tells it when it leads. Start with PolicySyncer.
package controller
