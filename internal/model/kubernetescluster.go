package model

import "strings"

// KubernetesCluster says which Kubernetes the cluster's store follows.
type KubernetesCluster struct {
	UID string `json:"uid"` // of its namespace kube-system, which lives as long as it does
}

// Validate checks the UID. The error is of kind ErrInvalid.
func (c KubernetesCluster) Validate() error {
	if c.UID == "" || len(c.UID) > 128 || strings.Trim(c.UID, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
		return InvalidField("uid", c.UID, "must be a UID, as kubectl get namespace kube-system -o jsonpath={.metadata.uid} prints it")
	}
	return nil
}
