//! Checks of the keys for the messages that are learned.

use batchweave_daemon::config::Problem;

use super::ProducerConfig;
use crate::transform::chat::Learn;

impl ProducerConfig {
    /// Adds the contradictions of `chat.learn`, `chat.loss_keys` and `chat.ignore`.
    pub(super) fn check_learned(&self, problems: &mut Vec<Problem>) {
        let chat = &self.chat;
        if let Learn::Roles(roles) = &chat.learn {
            if roles.is_empty() {
                let message =
                    "must name a role at least, as [\"assistant\"], or be \"all\" or \"last\"";
                problems.push(Problem::new("chat.learn", message));
            }
            let mapped = roles.iter().find_map(|role| {
                let other = chat.roles.get(role).filter(|other| *other != role)?;
                Some((role, other))
            });
            problems.extend(mapped.map(|(role, other)| {
                let message = format!(
                    "names {role:?}, which chat.roles maps to {other:?}; write {other:?}, as the template does"
                );
                Problem::new("chat.learn", message)
            }));
        }
        let twice = chat.loss_keys.iter().find(|key| chat.ignore.contains(key));
        problems.extend(twice.map(|key| {
            let message = format!("names {key:?}, which is in chat.ignore too; leave one out");
            Problem::new("chat.loss_keys", message)
        }));
        let text = [&chat.role_key, &chat.content_key];
        let text = chat.loss_keys.iter().find(|key| text.contains(key));
        problems.extend(text.map(|key| {
            let message = format!("names {key:?}, which is the role or the text; name another key");
            Problem::new("chat.loss_keys", message)
        }));
    }
}
