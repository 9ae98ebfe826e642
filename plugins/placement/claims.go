package placement

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
)

// selectedNode is the annotation by which the scheduler tells a provisioner the node of a volume
// (k8s.io/component-helpers storage/volume, v0.37.1): whoever sets it chooses the node of the pods.
const selectedNode = "volume.kubernetes.io/selected-node"

var claimKind = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")

// checkNode holds a node that an annotation names, where it was not named before.
func (s *Space) checkNode(path string, was, is metav1.Object) error {
	node := is.GetAnnotations()[selectedNode]
	if node == "" || was != nil && was.GetAnnotations()[selectedNode] == node {
		return nil
	}
	if path != "" {
		path += "."
	}
	return check(s.Rules["nodeName"], "nodeName",
		item{path: path + "metadata.annotations[" + selectedNode + "]", key: node})
}

// checkClaim holds a claim that a tenant writes, or that a controller makes of a tenant's template.
func (p *plugin) checkClaim(ctx context.Context, a admission.Attributes, space *Space) error {
	isMade := a.GetOperation() == admission.Create && plugins.MakesClaims(a.GetUserInfo())
	if !isMade && p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		return nil
	}
	is, err := meta.Accessor(a.GetObject())
	if err != nil {
		return plugins.ErrObject
	}
	var was metav1.Object
	if a.GetOperation() == admission.Update {
		if was, err = meta.Accessor(a.GetOldObject()); err != nil {
			return errOld
		}
	}
	return space.checkNode("", was, is)
}

// checkTemplates holds the templates of claims in an object.
func checkTemplates(was, is *workload.Object, space *Space) error {
	claims, err := is.Claims()
	if err != nil || len(claims) == 0 {
		return err
	}
	before := map[string]metav1.Object{}
	if was != nil {
		old, err := was.Claims()
		if err != nil {
			return errOld
		}
		for _, c := range old {
			before[c.Key] = c.Meta
		}
	}
	var refused plugins.Refusals
	for _, c := range claims {
		refused.Add(space.checkNode(c.Path, before[c.Key], c.Meta))
	}
	return refused.Err()
}

// checkNominated holds the node that a Pod's status nominates: room on it is held for the Pod.
func (p *plugin) checkNominated(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces, space *Space,
) error {
	if p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		return nil
	}
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	is, err := plugins.Versioned[corev1.Pod](a.GetObject(), kind, o)
	if err != nil {
		return err
	}
	was, err := plugins.Versioned[corev1.Pod](a.GetOldObject(), kind, o)
	if err != nil {
		return errOld
	}
	if node := is.Status.NominatedNodeName; node != "" && node != was.Status.NominatedNodeName {
		return check(space.Rules["nodeName"], "nodeName", item{path: "status.nominatedNodeName", key: node})
	}
	return nil
}
