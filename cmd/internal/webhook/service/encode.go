package service

import (
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answerBytes is room for most answers.
const answerBytes = 512

// answerWriter writes an answer as encoding/json would its Kubernetes type (FuzzAnswers), without looking at the type each
// time: empty texts and lists are left out.
type answerWriter struct{ text []byte }

func (w *answerWriter) begin() { w.text = append(w.text, '{') }

func (w *answerWriter) end() { w.text = append(w.text, '}') }

// next separates what follows from what is before it.
func (w *answerWriter) next() {
	if last := w.text[len(w.text)-1]; last != '{' && last != '[' {
		w.text = append(w.text, ',')
	}
}

// quote writes a text. Bytes that are no UTF-8 are replaced, which is what the error says, as encoding/json does.
func (w *answerWriter) quote(text string) {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			w.text, _ = jsontext.AppendQuote(w.text, text)
			return
		}
	}
	w.text = append(append(append(w.text, '"'), text...), '"')
}

// name begins a member.
func (w *answerWriter) name(name string) {
	w.next()
	w.quote(name)
	w.text = append(w.text, ':')
}

func (w *answerWriter) bool(name string, value bool) {
	w.name(name)
	w.text = strconv.AppendBool(w.text, value)
}

func (w *answerWriter) string(name, value string) {
	if value != "" {
		w.name(name)
		w.quote(value)
	}
}

func (w *answerWriter) strings(name string, values []string) {
	if len(values) > 0 {
		w.name(name)
		w.list(values)
	}
}

func (w *answerWriter) list(values []string) {
	w.text = append(w.text, '[')
	for _, value := range values {
		w.next()
		w.quote(value)
	}
	w.text = append(w.text, ']')
}

func (w *answerWriter) typed(is *metav1.TypeMeta) {
	w.string("kind", is.Kind)
	w.string("apiVersion", is.APIVersion)
}
